"""Charts of the GPU stack have one exact version, and their CRDs follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pulumi_policy import Severity

from rules import charts
from rules.engine import Config, Resource, Violation, resource_policy, stack_policy
from rules.installs import Install, operator_charts
from rules.views import View

# Schedulers and queues that GPU runs depend on: a new version of them stops or changes running work too.
_QUEUES = frozenset(
    {
        "kueue",
        "jobset",
        "training-operator",
        "kubeflow-trainer",
        "volcano",
        "kuberay-operator",
        "kai-scheduler",
    }
)
_GPU_STACK = (
    charts.DEVICE_PLUGIN_CHARTS
    | charts.DRA_CHARTS
    | charts.DRIVER_CHARTS
    | charts.NFD_CHARTS
    | charts.NETWORK_OPERATOR_CHARTS
    | _QUEUES
)
# A folder of the program: by a path, or below a folder that is no repository's alias.
_LOCAL = re.compile(r"[./]|file:|(charts|helm|vendor|deploy)/|[\w\-]+/[\w\-]+/")
_EXACT = re.compile(r"=?\s*v?\d+\.\d+\.\d+([\-+][\w.\-+]+)?")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_VERSION_IN_NAME = re.compile(
    r"-v?\d+\.\d+\.\d+[\w.\-+]*\.(tgz|tar\.gz)(\?.*)?$|@sha256:|:v?\d+\.\d+\.\d+[\w.\-]*$"
)
_CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
_CLUSTER_POLICIES = "clusterpolicies.nvidia.com"


def check_pins(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Charts of the GPU stack and of queues, from a repository; a folder of the program is what it is."""
    if charts.is_source(resource.type):
        yield from _check_source(resource)
    if not charts.is_chart(resource) or charts.by_source(resource):
        return
    key, version = _version(resource)
    if charts.chart_reference(resource).unknown and not _EXACT.fullmatch(version.peek_text() or ""):
        charts.chart_reference(resource).note()
    if not _is_judged(resource):
        return
    reference = charts.chart_reference(resource).peek_text() or ""
    if _LOCAL.match(reference) or _VERSION_IN_NAME.search(reference):
        return
    if version.unknown:
        version.note()
        return
    text = version.peek_text()
    if text and (_EXACT.fullmatch(text.strip()) or (_is_in_git(resource) and _COMMIT.fullmatch(text))):
        return
    is_now = f"{key} is '{text}', which takes whatever is newest in a range" if text else f"{key} is not set"
    yield Violation(
        f"{resource.title} of chart '{reference}': {is_now}, so the next `pulumi up` can bring another"
        f" version with other defaults, while runs are under way. Set {key} to one version, such as"
        f" v26.7.0{', or to a commit' if _is_in_git(resource) else ''}."
    )


def _check_source(resource: Resource) -> Iterator[Violation]:
    """Flux's OCIRepository: its digest wins over a range, and that over a tag, which is latest by default."""
    url, ref = resource.props["spec"]["url"], resource.props["spec"]["ref"]
    if ref["digest"].exists and not ref.unknown:
        return
    key = "semver" if ref["semver"].exists else "tag"
    text = ref[key].peek_text()
    if text and _EXACT.fullmatch(text.strip()):
        return
    name = charts.base_name(url.text() or "")
    if url.unknown or not (name in _GPU_STACK or charts.is_operator_name(name)):
        return
    if ref[key].unknown:
        ref[key].note()
        return
    is_now = f"ref.{key} is '{text}'" if text else "ref.tag is not set, which means latest"
    yield Violation(
        f"{resource.title} of chart '{url.peek()}': {is_now}, so that another version with other defaults"
        " can come by itself, while runs are under way. Set ref.tag to one version, such as v26.7.0, or"
        " ref.digest."
    )


def _is_in_git(resource: Resource) -> bool:
    """Argo CD takes a chart from a folder of a Git repository too; its revision is a tag or a commit."""
    return resource.kind == "Application" and not charts.chart_source(resource)["chart"].exists


def _is_judged(resource: Resource) -> bool:
    return bool(charts.chart_names(resource) & _GPU_STACK) or charts.operator_values(resource) is not None


def _version(resource: Resource) -> tuple[str, View]:
    props = resource.props
    if resource.kind == "HelmRelease":
        return "spec.chart.spec.version", props["spec"]["chart"]["spec"]["version"]
    if resource.kind == "Application":
        return "targetRevision", charts.chart_source(resource)["targetRevision"]
    if resource.kind == "HelmChart":
        return "spec.version", props["spec"]["version"]
    return "version", props["version"]


def check_crds(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """GPU Operators by a chart; with the CRD among the stack's own resources the program brings it itself."""
    own = {
        r.cluster
        for r in resources
        if r.type == _CRD and r.props["metadata"]["name"].peek_text() == _CLUSTER_POLICIES
    }
    charts.note_unnamed_charts([r for r in resources if _may_be_stale(r)], {r.cluster for r in resources})
    for install in operator_charts(resources):
        if install.resource.cluster not in own:
            yield from (Violation(problem, install.resource.urn) for problem in _stale(install))


def _may_be_stale(r: Resource) -> bool:
    switched = [r.props[key] for key in ("skipCrds", "disableCRDHooks", "disableWebhooks")]
    in_values = charts.chart_values(r)["operator"]["upgradeCRD"] if charts.is_chart(r) else r.props["-"]
    return any(each.exists for each in (*switched, in_values))


def _stale(install: Install) -> Iterator[str]:
    consequence = (
        "so an upgrade of the chart keeps the old CRDs: new fields are silently dropped or the operator"
        " does not start"
    )
    upgrade = install.setting("operator.upgradeCRD")
    if upgrade.value() in (False, "false"):
        yield f"{install.title}: operator.upgradeCRD is false, {consequence}. Set operator.upgradeCRD=true."
    for key, what in (
        ("skipCrds", "leaves the CRDs out"),
        ("disableCRDHooks", "turns the hook off that refreshes the CRDs"),
        ("disableWebhooks", "turns all hooks off, with the one that refreshes the CRDs"),
    ):
        if install.resource.props[key].value() is True:
            yield f"{install.title}: {key} is true, which {what}, {consequence}. Remove {key}."


CHART_PINNED = resource_policy(
    name="chart-pinned",
    description="Charts of the GPU stack and of queues name one exact version.",
    severity=Severity.MEDIUM,
    remediation="Set the chart's version to one version in full (v26.7.0), no range and not the newest.",
    check=check_pins,
    wants=lambda type_: charts.is_source(type_) or charts.may_be_chart(type_),
)

CRDS_FOLLOW_CHART = stack_policy(
    name="crds-follow-the-chart",
    description="The GPU Operator's CRDs are refreshed when its chart is upgraded.",
    severity=Severity.MEDIUM,
    remediation=(
        "Leave operator.upgradeCRD on and the chart's hooks and CRDs enabled (helm.v3.Release), or declare"
        f" the CustomResourceDefinition {_CLUSTER_POLICIES} of the same version in the program."
    ),
    check=check_crds,
    wants=lambda type_: type_ == _CRD or charts.may_be_chart(type_),
)
