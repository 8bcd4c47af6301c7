"""The GPU Operators that a stack installs, and what each is told to own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rules.charts import chart_namespace, has_value_files, is_chart, is_component, operator_values
from rules.engine import Resource
from rules.views import UNKNOWN, View

CLUSTER_POLICY = "kubernetes:nvidia.com/v1:ClusterPolicy"

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
# What the chart (v26.7.0) and the ClusterPolicy do when a key is not set.
DEFAULTS: dict[str, object] = {
    "driver.enabled": True,
    "toolkit.enabled": True,
    "devicePlugin.enabled": True,
    "nfd.enabled": True,
    "cdi.enabled": True,
    "operator.runtimeClass": "nvidia",
    "hostPaths.driverInstallDir": "/run/nvidia/driver",
    "toolkit.installDir": "/usr/local/nvidia",
}


@dataclass(frozen=True)
class Install:
    """One GPU Operator: `settings` are chart values or a ClusterPolicy's spec, which share their keys."""

    resource: Resource
    settings: View
    by_chart: bool

    @property
    def title(self) -> str:
        return self.resource.title

    @property
    def namespace(self) -> View:
        if self.by_chart:
            return chart_namespace(self.resource)
        return self.resource.props["metadata"]["namespace"]

    @property
    def operand_tolerations(self) -> View:
        """Those of the operands: a list that is set replaces the chart's own."""
        given = self.setting("daemonsets.tolerations")
        return given if given.exists else given.over([GPU_TOLERATION])

    @property
    def has_driver_objects(self) -> bool:
        """Whether NVIDIADriver objects install drivers, which they do whatever driver.enabled says."""
        driver = self.settings["driver"]
        key = driver["nvidiaDriverCRD"]["enabled"] if self.by_chart else driver["useNvidiaDriverCRD"]
        return key.peek() in (True, "true")

    def setting(self, dotted: str) -> View:
        view = self.settings
        for key in dotted.split("."):
            view = view[key]
        if not view.exists and self.by_chart and has_value_files(self.resource):
            return View(UNKNOWN, self.resource.unknowns, f"values.{dotted} (it may be in valueYamlFiles)")
        return view

    def effective(self, dotted: str) -> object:
        """The value in force: what is set, else the chart's default; None when not known yet (not noted).

        Null removes a key in Helm, and the text "false" renders as the boolean.
        """
        view = self.setting(dotted)
        if dotted == "driver.enabled" and self.has_driver_objects:
            return True
        if view.unknown:
            return None
        value = view.peek()
        if isinstance(value, str) and value.lower() in ("true", "false"):
            # Helm ignores a condition that is no boolean: the subchart stays on (helm, ProcessDependencies).
            return dotted == "nfd.enabled" or value.lower() == "true"
        return DEFAULTS.get(dotted) if value is None else value


def operator_charts(resources: Sequence[Resource]) -> list[Install]:
    """The Releases and Charts that install the GPU Operator."""
    return [
        Install(resource, values, by_chart=True)
        for resource in resources
        if is_chart(resource) and (values := operator_values(resource)) is not None
    ]


def installs(resources: Sequence[Resource]) -> list[Install]:
    """Charts of the GPU Operator, then ClusterPolicies that no such chart of the stack explains.

    A ClusterPolicy that a Chart component rendered speaks for it: the component's values may come from files,
    or not be shown at all. With `clusterPolicy.deployCR: false` the chart leaves the ClusterPolicy to the
    program, which has the last word.
    """
    objects = [
        Install(resource, resource.props["spec"], by_chart=False)
        for resource in resources
        if resource.type == CLUSTER_POLICY
    ]
    rendered = {urn for policy in objects for urn in policy.resource.ancestors}
    charts = [
        install
        for install in operator_charts(resources)
        if not (is_component(install.resource) and install.resource.urn in rendered)
    ]
    covered = {install.resource.urn for install in charts}
    policies = [policy for policy in objects if not covered.intersection(policy.resource.ancestors)]
    spoken_for = {policy.resource.cluster for policy in policies}
    speaking = [
        chart
        for chart in charts
        if chart.effective("clusterPolicy.deployCR") is not False or chart.resource.cluster not in spoken_for
    ]
    return speaking + policies
