"""The operands' DaemonSets, made from a ClusterPolicy's spec as NVIDIA's controller makes them (v26.7.0).

Same names, node selectors, tolerations, init containers, runtime classes and host paths. What the containers
do is simulated, except for the device plugin and the validator's steps that say otherwise.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import gpus

Json = dict[str, Any]

PART_OF = "holdfast-rehearsal"
MANAGER = "gpu-operator-rehearsal"
HASH_ANNOTATION = "holdfast.dev/rehearsal-spec-hash"
NODE_AGENT = "gpu-operator-rehearsal-node-agent"  # the chart's ServiceAccount: may read and label nodes

_VALIDATIONS = "/run/nvidia/validations"
_DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
# Nothing here has state to save, so a drain and an uninstall never wait for these pods.
_GRACE_SECONDS = 2

# A shell takes 1 MB where an idle Python takes 9. It must trap SIGTERM: the first process of a container
# ignores a signal that it has no handler for.
_IDLE = "trap 'exit 0' TERM INT; echo \"{text}\"; sleep infinity & wait"
_IDLE_VALIDATOR = "trap 'rm -f /run/nvidia/validations/*-ready; exit 0' TERM INT; {rest}"
_WAIT_FOR_TOOLKIT = (
    "trap 'exit 143' TERM INT; [ -f /run/nvidia/validations/toolkit-ready ] || "
    'echo "waiting for the node\'s toolkit-validation (pod nvidia-operator-validator)"; '
    "until [ -f /run/nvidia/validations/toolkit-ready ]; do sleep 0.2; done"
)


@dataclass(frozen=True)
class Site:
    """Where the operands go: the operator's namespace, the image of this package, and their owner.

    `owner` is the ClusterPolicy's (name, uid): the garbage collector removes what it owns when it is deleted.
    """

    namespace: str
    image: str
    owner: tuple[str, str]


@dataclass(frozen=True)
class Pod:
    """What differs from operand to operand in a pod."""

    containers: Sequence[Json]
    init_containers: Sequence[Json] = ()
    volumes: Sequence[Json] = ()
    service_account: str | None = None


@dataclass(frozen=True)
class Operand:
    """One row of the table: a section of the spec and the DaemonSet that it switches on.

    `state` is the controller's name for it in the status; `deploy` the label that selects its nodes;
    `uses_runtime_class` is false for the two that make the runtime usable in the first place.
    """

    section: str
    name: str
    state: str
    deploy: str
    uses_runtime_class: bool = True
    selector: Mapping[str, str] = field(default_factory=dict)  # beyond the deploy label


DEPLOY_PREFIX = "nvidia.com/gpu.deploy."

# The order is the controller's own.
OPERANDS: tuple[Operand, ...] = (
    Operand("driver", "nvidia-driver-daemonset", "state-driver", "driver", uses_runtime_class=False),
    Operand(
        "toolkit",
        "nvidia-container-toolkit-daemonset",
        "state-container-toolkit",
        "container-toolkit",
        uses_runtime_class=False,
    ),
    Operand("validator", "nvidia-operator-validator", "state-operator-validation", "operator-validator"),
    Operand("devicePlugin", "nvidia-device-plugin-daemonset", "state-device-plugin", "device-plugin"),
    Operand(
        "devicePlugin",
        "nvidia-device-plugin-mps-control-daemon",
        "state-mps-control-daemon",
        "device-plugin",
        selector={"nvidia.com/mps.capable": "true"},
    ),
    Operand("dcgmExporter", "nvidia-dcgm-exporter", "state-dcgm-exporter", "dcgm-exporter"),
    Operand("gfd", "gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery"),
    Operand("migManager", "nvidia-mig-manager", "state-mig-manager", "mig-manager"),
)


def section(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """One section of the spec; empty when it is absent or null."""
    return spec.get(name) or {}


def enabled(spec: Mapping[str, Any], operand: Operand) -> bool:
    """Whether the spec switches the operand on; the validator has no switch, and the default is on."""
    return operand.section == "validator" or switched_on(spec, operand.section)


def switched_on(spec: Mapping[str, Any], name: str) -> bool:
    """The section's `enabled`; a section that does not say is on."""
    return section(spec, name).get("enabled", True) is not False


def daemon_set(spec: Mapping[str, Any], operand: Operand, site: Site) -> Json:
    """The operand's DaemonSet as the API server takes it, with a hash of itself as annotation."""
    common = section(spec, "daemonsets")
    pod = _POD_OF.get(operand.name, _idle_pod)(spec, operand, site)
    pod_spec: Json = {
        "nodeSelector": {DEPLOY_PREFIX + operand.deploy: "true", **operand.selector},
        "tolerations": list(common.get("tolerations") or ()),
        "containers": list(pod.containers),
        "initContainers": list(pod.init_containers),
        "volumes": list(pod.volumes),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": pod.service_account is not None,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    if pod.service_account is not None:
        pod_spec["serviceAccountName"] = pod.service_account
    if common.get("priorityClassName"):
        pod_spec["priorityClassName"] = common["priorityClassName"]
    if operand.uses_runtime_class:
        pod_spec["runtimeClassName"] = runtime_class_name(spec)
    own = {"app": operand.name, "app.kubernetes.io/part-of": PART_OF}
    # As in the real controller, the spec's labels and annotations go to the pods, and never replace these.
    template: Json = {"labels": {**(common.get("labels") or {}), **own}}
    if common.get("annotations"):
        template["annotations"] = dict(common["annotations"])
    made: Json = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": operand.name,
            "namespace": site.namespace,
            "labels": {**own, "app.kubernetes.io/managed-by": MANAGER},
            "ownerReferences": [owner_reference(site)],
        },
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": _update_strategy(common),
            "template": {"metadata": template, "spec": pod_spec},
        },
    }
    return with_hash(made)


def with_hash(made: Json) -> Json:
    """The object with a hash of its content, so that an unchanged one is not written again."""
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
    return {**made, "metadata": {**made["metadata"], "annotations": {HASH_ANNOTATION: digest}}}


def owner_reference(site: Site) -> Json:
    """The ClusterPolicy as the controlling owner."""
    name, uid = site.owner
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def runtime_class_name(spec: Mapping[str, Any]) -> str:
    """Name and handler of the RuntimeClass that the operands run under."""
    return str(section(spec, "operator").get("runtimeClass") or "nvidia")


def _update_strategy(common: Mapping[str, Any]) -> Json:
    if common.get("updateStrategy") == "OnDelete":
        return {"type": "OnDelete"}
    most = str((common.get("rollingUpdate") or {}).get("maxUnavailable") or "1")
    # The chart quotes the number; the API takes a string only as a percentage.
    most_unavailable = int(most) if most.isdigit() else most
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most_unavailable}}


# --- pods ---


def _env(*lists: Sequence[Mapping[str, Any]] | None) -> list[Json]:
    """Environment lists merged by name: a later list wins, as in the real controller."""
    merged = {entry["name"]: dict(entry) for entries in lists for entry in entries or ()}
    return list(merged.values())


def _container(
    name: str,
    command: Sequence[str],
    values: Mapping[str, Any],
    site: Site,
    *,
    env: Sequence[Json] = (),
    mounts: Sequence[Json] = (),
) -> Json:
    """A container of this image. Root, since it writes to the host's folders, but without any capability."""
    made: Json = {
        "name": name,
        "image": site.image,
        "imagePullPolicy": values.get("imagePullPolicy") or "IfNotPresent",
        "command": list(command),
        "env": list(env),
        "volumeMounts": list(mounts),
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if values.get("resources"):
        made["resources"] = values["resources"]
    return made


def _program(module: str, *arguments: str) -> list[str]:
    return ["python3", "-m", f"gpu_operator.{module}", *arguments]


def _shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def _folder(name: str, path: str) -> Json:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _mount(name: str, path: str, *, read_only: bool = False) -> Json:
    return {"name": name, "mountPath": path, "readOnly": read_only}


_VALIDATIONS_VOLUME = _folder("run-nvidia-validations", _VALIDATIONS)
_GPUS_VOLUME = _folder("rehearsal-gpus", gpus.HOST_FOLDER)
_GPUS_MOUNT = _mount("rehearsal-gpus", gpus.HOST_FOLDER, read_only=True)
_NODE_NAME: Json = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def _wait_for_toolkit(values: Mapping[str, Any], site: Site) -> Json:
    mounts = [_mount("run-nvidia-validations", _VALIDATIONS, read_only=True)]
    return _container("toolkit-validation", _shell(_WAIT_FOR_TOOLKIT), values, site, mounts=mounts)


def _idle_pod(spec: Mapping[str, Any], operand: Operand, site: Site) -> Pod:
    """An operand whose work is not simulated: it is there, so that a second owner can be seen, and idles."""
    values = section(spec, operand.section)
    text = f"{operand.name} of the GPU Operator stand-in: present, does nothing"
    container = _container(
        operand.name, _shell(_IDLE.format(text=text)), values, site, env=_env(values.get("env"))
    )
    if not operand.uses_runtime_class:
        return Pod(containers=[container])
    return Pod([container], [_wait_for_toolkit(values, site)], [_VALIDATIONS_VOLUME])


def _device_plugin_pod(spec: Mapping[str, Any], operand: Operand, site: Site) -> Pod:
    values = section(spec, operand.section)
    container = _container(
        "nvidia-device-plugin",
        _program("device_plugin"),
        values,
        site,
        env=_env(values.get("env")),
        mounts=[_mount("device-plugin", _DEVICE_PLUGINS), _GPUS_MOUNT],
    )
    kubelet = {"name": "device-plugin", "hostPath": {"path": _DEVICE_PLUGINS}}
    volumes = [kubelet, _VALIDATIONS_VOLUME, _GPUS_VOLUME]
    return Pod([container], [_wait_for_toolkit(values, site)], volumes)


def _feature_discovery_pod(spec: Mapping[str, Any], operand: Operand, site: Site) -> Pod:
    values = section(spec, operand.section)
    container = _container(
        operand.name,
        _program("feature_discovery", "gfd"),
        values,
        site,
        env=_env([_NODE_NAME], values.get("env")),
        mounts=[_GPUS_MOUNT],
    )
    volumes = [_VALIDATIONS_VOLUME, _GPUS_VOLUME]
    return Pod([container], [_wait_for_toolkit(values, site)], volumes, service_account=NODE_AGENT)


def _validator_pod(spec: Mapping[str, Any], operand: Operand, site: Site) -> Pod:
    values = section(spec, operand.section)
    mounts = [_mount("run-nvidia-validations", _VALIDATIONS), _GPUS_MOUNT]
    # The real controller leaves plugin-validation out when the plugin is not its own (object_controls.go,
    # TransformValidatorComponent).
    steps = ["driver", "toolkit", "cuda", *(["plugin"] if switched_on(spec, "devicePlugin") else [])]
    init = [
        _container(
            f"{step}-validation",
            _program("validator", step),
            values,
            site,
            env=_env([_NODE_NAME], values.get("env"), section(values, step).get("env")),
            mounts=mounts,
        )
        for step in steps
    ]
    done = _IDLE_VALIDATOR.format(rest='echo "all validations are successful"; sleep infinity & wait')
    main = _container(operand.name, _shell(done), values, site, env=_env(values.get("env")), mounts=mounts)
    return Pod([main], init, [_VALIDATIONS_VOLUME, _GPUS_VOLUME], service_account=NODE_AGENT)


_POD_OF = {
    "nvidia-device-plugin-daemonset": _device_plugin_pod,
    "gpu-feature-discovery": _feature_discovery_pod,
    "nvidia-operator-validator": _validator_pod,
}
