"""Pods against the Pod Security Standard that their namespace enforces: refused, a Job has no Pod at all.

Source: Kubernetes documentation, "Pod Security Standards". Only what Pods of the field touch is judged;
AppArmor, SELinux types and sysctls are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import Severity

from rules import charts
from rules.engine import Config, Resource, Violation, stack_policy
from rules.installs import installs
from rules.pods import Workload, may_have_pods, workloads
from rules.quantity import show
from rules.views import View

ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
# A Patch gives its labels to a Namespace that somebody else made.
_NAMESPACES = frozenset({"kubernetes:core/v1:Namespace", "kubernetes:core/v1:NamespacePatch"})
# Charts whose Pods mount the node's folders or are privileged.
_ON_THE_NODE = (
    charts.DEVICE_PLUGIN_CHARTS
    | charts.DRA_CHARTS
    | charts.DRIVER_CHARTS
    | charts.NFD_CHARTS
    | charts.NETWORK_OPERATOR_CHARTS
)
_LEVELS = ("baseline", "restricted")
_BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
        "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
_RESTRICTED_VOLUMES = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
        "secret", "image", "name",
    }
)  # fmt: skip


def check_pod_security(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Every Pod template in a namespace of the stack that enforces a standard, and the GPU stack's own
    charts.
    """
    enforced: dict[tuple[str, str], str] = {}
    for r in resources:
        if r.type in _NAMESPACES:
            level = r.props["metadata"]["labels"][ENFORCE_LABEL]
            name = r.props["metadata"]["name"].peek_text()
            if level.value() in _LEVELS and r.props["metadata"]["name"].unknown:
                r.props["metadata"]["name"].note()
            if name and level.value() in _LEVELS:
                enforced[(r.cluster, name)] = level.peek()
    if not enforced:
        return
    charts.note_unnamed_charts(resources, {cluster for cluster, _ in enforced})
    for install in installs(resources):
        level = enforced.get((install.resource.cluster, install.namespace.text() or ""))
        if level:
            yield _needs_privileges(install.title, install.resource.urn, level)
    for r in resources:
        if charts.is_chart(r) and charts.chart_names(r) & _ON_THE_NODE:
            level = enforced.get((r.cluster, charts.chart_namespace(r).text() or ""))
            if level:
                yield _needs_privileges(r.title, r.urn, level)
        for workload in workloads(r):
            where = (r.cluster, workload.namespace.peek_text() or "default")
            if workload.namespace.unknown and any(cluster == r.cluster for cluster, _ in enforced):
                workload.namespace.note()
            level = enforced.get(where)
            if level is None or workload.namespace.unknown or not workload.complete:
                continue
            if workload.spec["os"]["name"].peek_text() == "windows":
                continue
            problems = list(dict.fromkeys(_problems(workload, level)))
            if problems:
                yield Violation(
                    f"{workload.title} has no Pod: namespace '{where[1]}' enforces the Pod Security Standard"
                    f" '{level}', which forbids: {'; '.join(problems)}.",
                    r.urn,
                )


def _needs_privileges(title: str, urn: str, level: str) -> Violation:
    return Violation(
        f"{title} has no Pods: its namespace enforces the Pod Security Standard '{level}', and drivers,"
        f" toolkit, device plugin and NFD need the node. Set the label {ENFORCE_LABEL}: privileged on that"
        " Namespace.",
        urn,
    )


def _problems(workload: Workload, level: str) -> Iterator[str]:
    spec = workload.spec
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec[key].value() is True:
            yield f"{key}: true (remove it)"
    for volume in spec["volumes"].elements():
        name = volume["name"].peek_text()
        if volume["hostPath"].exists:
            yield f"hostPath volume '{name}' (use a PersistentVolumeClaim)"
        elif level == "restricted":
            for kind in sorted(set(volume.peek_keys()) - _RESTRICTED_VOLUMES):
                if volume[kind].exists:
                    yield f"volume '{name}' of type {kind} (use a PersistentVolumeClaim)"
    for container in workload.containers():
        where = f"container '{container.name}'"
        security = container.view["securityContext"]
        if security["privileged"].value() is True:
            yield f"{where} privileged: true (remove it)"
        for port in container.view["ports"].peek_elements():
            if port["hostPort"].peek() not in (None, 0):
                yield f"{where} hostPort {show(port['hostPort'].peek())} (remove it)"
        yield from _capabilities(where, security["capabilities"], level)
        if level == "restricted":
            yield from _restricted(where, spec["securityContext"], security)


def _capabilities(where: str, capabilities: View, level: str) -> Iterator[str]:
    added = {name.text() or "" for name in capabilities["add"].elements()}
    allowed = _BASELINE_CAPABILITIES if level == "baseline" else frozenset({"NET_BIND_SERVICE"})
    for name in sorted(added - allowed - {""}):
        yield f"{where} capability {name} (remove it)"
    if level == "restricted":
        dropped = [name.text() for name in capabilities["drop"].elements()]
        if "ALL" not in dropped and not capabilities["drop"].unknown and not capabilities.unknown:
            yield f"{where} without capabilities.drop: [ALL] (add it)"


def _restricted(where: str, pod: View, own: View) -> Iterator[str]:
    if own.unknown or pod.unknown:
        own.value(), pod.value()
        return
    if own["allowPrivilegeEscalation"].value() is not False and not own["allowPrivilegeEscalation"].unknown:
        yield f"{where} without allowPrivilegeEscalation: false (add it)"
    non_root = own["runAsNonRoot"] if own["runAsNonRoot"].exists else pod["runAsNonRoot"]
    if non_root.value() is not True and not non_root.unknown:
        yield f"{where} without runAsNonRoot: true (add it to the Pod's securityContext)"
    user = own["runAsUser"] if own["runAsUser"].exists else pod["runAsUser"]
    if user.value() == 0 and user.peek() is not False:
        yield f"{where} runAsUser: 0 (set another)"
    seccomp = own["seccompProfile"] if own["seccompProfile"].exists else pod["seccompProfile"]
    kind = seccomp["type"]
    if kind.value() not in ("RuntimeDefault", "Localhost") and not kind.unknown:
        yield f"{where} without seccompProfile.type: RuntimeDefault (add it to the Pod's securityContext)"


POD_SECURITY = stack_policy(
    name="pod-security-admission",
    description="Pods meet the Pod Security Standard that their namespace enforces.",
    severity=Severity.HIGH,
    remediation=(
        f"Give the Pod what the standard wants, or the Namespace another label {ENFORCE_LABEL}: privileged"
        " for the GPU Operator and device plugins, restricted for training."
    ),
    check=check_pod_security,
    wants=lambda type_: type_ in _NAMESPACES or charts.may_be_chart(type_) or may_have_pods(type_),
)
