"""GPU work takes its GPUs by request, and nothing else of the node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulumi_policy import EnforcementLevel, Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.pods import Workload, in_scope, may_be_in_scope, may_have_pods, workloads
from rules.tolerations import belongs_to_the_system
from rules.views import View

# With these a program can leave its container. IPC_LOCK (RDMA) and SYS_PTRACE (debuggers) can not.
_CAPABILITIES = frozenset(
    {"ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "DAC_READ_SEARCH", "BPF"}
)
# The folders above the sockets and the state of the runtime give the same. K3s and RKE2 have their own.
_WHOLE_NODE = re.compile(
    r"/|/(etc|root|boot|proc|dev)(/(kubernetes|rancher|shadow|passwd|ssh|cni)(/.*)?)?|/var(/lib)?|/(var/)?run"
    r"|/(var/)?run/(docker|crio|containerd|k3s)[\w./\-]*"
    r"|/var/lib/(kubelet|docker|containerd|etcd|rancher)(/.*)?"
)
_DEVICE = re.compile(r"/dev/nvidia[\w./\-]*|/dev/dxg")
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES = frozenset({"", "none", "void"})


def check_privileges(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Pod that asks for GPUs or is ours, but those of DaemonSets and of the cluster's own services."""
    for workload in workloads(resource):
        if workload.kind == "DaemonSet" or not may_be_in_scope(workload):
            continue
        problems = list(_problems(workload))
        if problems and not belongs_to_the_system(workload) and in_scope(workload):
            yield from (Violation(f"{workload.title}{problem}") for problem in problems)


def _problems(workload: Workload) -> Iterator[str]:
    spec = workload.spec
    for key, instead in (
        ("hostPID", "Remove it."),
        ("hostIPC", "For shared memory mount an emptyDir with medium: Memory at /dev/shm."),
    ):
        if spec[key].value() is True:
            yield f" has {key}: true, so it reaches the processes of every other Pod on the node. {instead}"
    for volume in spec["volumes"].elements():
        path = volume["hostPath"]["path"].text()
        if path and _WHOLE_NODE.fullmatch(_plain(path)):
            yield (
                f", volume '{volume['name'].peek_text()}': hostPath {path} gives it the node, and with that"
                " every other Pod's data and tokens. Remove the volume; for data use a"
                " PersistentVolumeClaim."
            )
    for container in workload.containers():
        security = container.view["securityContext"]
        where = f", container '{container.name}'"
        if security["privileged"].value() is True:
            yield (
                f"{where}: privileged: true shows it every GPU of the node, whatever it asked for, and"
                " gives it the node. Remove it; the GPU comes by resources.limits."
            )
        added = {
            (name.text() or "").upper().removeprefix("CAP_")
            for name in security["capabilities"]["add"].elements()
        }
        for name in sorted(added & _CAPABILITIES):
            yield f"{where}: capability {name} is the node itself. Remove it from capabilities.add."


def _plain(path: str) -> str:
    """A path of the node without what changes nothing in it: `/run/` is `/run`, `//` is `/`."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def check_root(resource: Resource, _config: Config) -> Iterator[Violation]:
    """What a Pod that asks for GPUs, or is ours, says of its user and its rights; silence says nothing."""
    for workload in workloads(resource):
        if workload.kind == "DaemonSet" or not may_be_in_scope(workload):
            continue
        problems = list(_root(workload))
        if problems and not belongs_to_the_system(workload) and in_scope(workload):
            yield from (Violation(f"{workload.title}{problem}") for problem in problems)


def _root(workload: Workload) -> Iterator[str]:
    places = [("", workload.spec["securityContext"])]
    places += [(f", container '{c.name}'", c.view["securityContext"]) for c in workload.containers()]
    for where, security in places:
        user = security["runAsUser"].value()
        if user == 0 and user is not False:
            yield (
                f"{where}: runAsUser 0 is root: what it writes to a shared volume no other user can change,"
                " and a way out of the container ends as root of the node. Set the uid that owns the"
                " checkpoints."
            )
        if security["runAsNonRoot"].value() is False:
            yield f"{where}: runAsNonRoot: false allows root. Set true, with the uid of the checkpoints."
        if security["allowPrivilegeEscalation"].value() is True:
            yield f"{where}: allowPrivilegeEscalation: true lets a program become root. Set it to false."
        if security["seccompProfile"]["type"].value() == "Unconfined":
            yield f"{where}: seccompProfile Unconfined allows every system call. Set RuntimeDefault."


def check_by_request(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Pod, whether it asks for GPUs or not, but those of DaemonSets and of the cluster's own
    services.
    """
    for workload in workloads(resource):
        if workload.kind == "DaemonSet":
            continue
        problems = list(_past_the_plugin(workload))
        if problems and not belongs_to_the_system(workload):
            yield from (Violation(f"{workload.title}{problem}") for problem in problems)


def _past_the_plugin(workload: Workload) -> Iterator[str]:
    for volume in workload.spec["volumes"].elements():
        path = volume["hostPath"]["path"].text() or ""
        if _DEVICE.fullmatch(_plain(path)):
            yield (
                f", volume '{volume['name'].peek_text()}': hostPath {path} takes a GPU that the device"
                " plugin gives to others too. Remove the volume, and set resources.limits nvidia.com/gpu."
            )
    for container in workload.containers():
        for variable in container.view["env"].elements():
            value = variable["value"]
            if variable["name"].text() == _VISIBLE and _takes_devices(value):
                yield (
                    f", container '{container.name}': {_VISIBLE}={value.peek_text()} takes GPUs that the"
                    " device plugin gives to others too: it wins over what the plugin sets. Remove the"
                    " variable, and set resources.limits nvidia.com/gpu."
                )


def _takes_devices(value: View) -> bool:
    text = value.value()
    return isinstance(text, str) and text.strip().lower() not in _NO_DEVICES


GPU_POD_PRIVILEGES = resource_policy(
    name="gpu-pod-privileges",
    description="A Pod that uses GPUs has no power over its node.",
    severity=Severity.HIGH,
    remediation=(
        "Remove privileged, hostPID, hostIPC, SYS_ADMIN and the like, and hostPath volumes of the node's own"
        " folders. A GPU needs none of them: it comes by resources.limits."
    ),
    check=check_privileges,
    wants=may_have_pods,
)

GPU_POD_NOT_ROOT = resource_policy(
    name="gpu-pod-not-root",
    description="A Pod that uses GPUs does not ask to be root.",
    severity=Severity.MEDIUM,
    remediation=(
        "Set runAsNonRoot: true with the uid that owns the checkpoints, allowPrivilegeEscalation: false and"
        " seccompProfile RuntimeDefault."
    ),
    check=check_root,
    level=EnforcementLevel.ADVISORY,
    wants=may_have_pods,
)

GPUS_BY_REQUEST = resource_policy(
    name="gpus-by-request",
    description="GPUs come by resources.limits only, not past the device plugin.",
    severity=Severity.HIGH,
    remediation=(
        f"Remove {_VISIBLE} from the container's environment and /dev/nvidia* from the volumes, and set"
        " resources.limits with nvidia.com/gpu."
    ),
    check=check_by_request,
    wants=may_have_pods,
)
