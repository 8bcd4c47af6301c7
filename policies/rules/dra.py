"""A GPU is advertised by a device plugin or by a DRA driver, and its quota counts the one that is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import Severity

from rules import charts
from rules.engine import Config, Resource, Violation, stack_policy
from rules.installs import operator_charts
from rules.pods import asks_for_gpu, gpu_names, may_have_pods, note_hidden_resources, workloads
from rules.quota_keys import QUOTA, gpu_quota
from rules.views import View

_GPU_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
_CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")
_GROUP = "kubernetes:resource.k8s.io/"
_COUNTS_DEVICES = ".deviceclass.resource.k8s.io/devices"


def check_dra(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Claims of NVIDIA's device classes, the drivers that serve them, and the quotas that do not count
    them.
    """
    for install in operator_charts(resources):
        by_driver = install.setting("gpuCluster.deployCR")
        if by_driver.value() in (True, "true") and install.effective("clusterPolicy.deployCR") is not False:
            yield Violation(
                f"{install.title}: gpuCluster.deployCR and clusterPolicy.deployCR are both on: the first"
                " advertises GPUs by a DRA driver, the second by the device plugin, and the chart refuses"
                " both. Set one of them to false.",
                install.resource.urn,
            )
    every = [r for r in resources if r.type.startswith(_GROUP) and r.kind in _CLAIMS]
    claims = [r for r in every if _device_class(r)]
    if not claims:
        return
    for r in resources:
        if r.type == QUOTA:
            r.props["metadata"]["namespace"].value(), r.props["spec"]["hard"].value()
    for claim in claims:
        claim.props["metadata"]["namespace"].value()
    charts.note_unnamed_charts(resources, {claim.cluster for claim in claims})
    yield from _check_drivers(resources, claims)
    quotas = {}
    for r in resources:
        if r.type == QUOTA:
            hard = r.props["spec"]["hard"]
            if gpu_quota(hard) and not any(key.endswith(_COUNTS_DEVICES) for key in hard.keys()):
                quotas[(r.cluster, _namespace(r))] = r
    for claim in claims:
        quota = quotas.get((claim.cluster, _namespace(claim)))
        if quota is not None:
            kind = _device_class(claim)
            yield Violation(
                f"{claim.title} takes GPUs of the class {kind}, which {quota.title} does not count: its"
                " requests.nvidia.com/gpu caps the device plugin's GPUs only. Add"
                f" {kind}{_COUNTS_DEVICES} to the quota.",
                claim.urn,
            )
    yield from _check_pods(resources, claims)


def _namespace(r: Resource) -> str:
    return r.props["metadata"]["namespace"].peek_text() or "default"


def _device_class(claim: Resource) -> str | None:
    spec = claim.props["spec"]
    if claim.kind == "ResourceClaimTemplate":
        spec = spec["spec"]
    for request in spec["devices"]["requests"].elements():
        for one in (request, request["exactly"], *request["firstAvailable"].elements()):
            name = one["deviceClassName"].text()
            if name in _GPU_CLASSES:
                return name
    return None


def _check_drivers(resources: Sequence[Resource], claims: Sequence[Resource]) -> Iterator[Violation]:
    drivers = [r for r in resources if charts.is_chart(r) and charts.chart_names(r) & charts.DRA_CHARTS]
    for cluster in sorted({claim.cluster for claim in claims}):
        here = [r for r in drivers if r.cluster == cluster]
        off = [r for r in here if _switch(r).value() in (False, "false")]
        if here and len(off) == len(here):
            claim = next(claim for claim in claims if claim.cluster == cluster)
            yield Violation(
                f"{claim.title} asks for the class {_device_class(claim)}, but {off[0].title} has"
                " resources.gpus.enabled=false, so that no GPU is offered to claims. Ask for GPUs by"
                " resources.limits, or let the DRA driver have them and set devicePlugin.enabled=false in"
                " the GPU Operator's values.",
                claim.urn,
            )


def _switch(r: Resource) -> View:
    return charts.chart_values(r)["resources"]["gpus"]["enabled"]


def _check_pods(resources: Sequence[Resource], claims: Sequence[Resource]) -> Iterator[Violation]:
    named = {(c.cluster, _namespace(c), c.props["metadata"]["name"].peek_text()): c for c in claims}
    for r in resources:
        for workload in workloads(r):
            if asks_for_gpu(workload) is False:
                continue
            asked = sorted(
                name for c in workload.spec["containers"].peek_elements() for name in gpu_names(c)[0]
            )
            namespace = workload.namespace.text() or "default"
            for each in workload.spec["resourceClaims"].elements():
                for key in ("resourceClaimName", "resourceClaimTemplateName"):
                    claim = named.get((r.cluster, namespace, each[key].text()))
                    if claim is not None and not asked:
                        note_hidden_resources(workload)
                    elif claim is not None:
                        yield Violation(
                            f"{workload.title} asks for {asked[0]} by resources.limits and for a GPU of the"
                            f" class {_device_class(claim)} by {claim.title}: it takes both, from two"
                            " drivers that do not know of each other. Keep one of them.",
                            r.urn,
                        )


def _wants(type_: str) -> bool:
    described = type_ == QUOTA or type_.startswith(_GROUP)
    return described or charts.may_be_chart(type_) or may_have_pods(type_)


PLUGIN_OR_DRA = stack_policy(
    name="device-plugin-or-dra",
    description="GPUs come by the device plugin or by resource claims, and quotas count the one in use.",
    severity=Severity.HIGH,
    remediation=(
        "Ask for GPUs in one way. With claims, switch the device plugin off for those nodes and cap them by"
        " <class>.deviceclass.resource.k8s.io/devices in the ResourceQuota."
    ),
    check=check_dra,
    wants=_wants,
)
