"""Recognising DaemonSets that own a layer of the GPU stack, by name, image and what they mount."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rules.engine import Resource
from rules.pods import Container, workloads
from rules.views import View

DEVICE_PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

_NAMES = {
    "devicePlugin": re.compile(r"nvidia-(gpu-)?device-plugin|hami-device-plugin"),
    "driver": re.compile(r"nvidia-(gpu-)?driver-(installer|daemonset)|cos-nvidia-installer"),
    "toolkit": re.compile(r"nvidia-container-toolkit|container-toolkit-daemonset"),
    "nfd": re.compile(r"node-feature-discovery-worker|nfd-worker"),
}
_IMAGES = {
    "devicePlugin": re.compile(r"(^|/)(k8s|nvidia|nvidia-gpu|gke-nvidia-gpu)-device-plugin$|/hami$"),
    "driver": re.compile(
        r"(^|/)([\w\-]*nvidia-driver-installer|cos-nvidia-installer|cos-gpu-installer|gke-nvidia-installer)$"
        r"|nvidia/([\w\-]+/)*driver$"
    ),
    "toolkit": re.compile(r"nvidia/([\w\-]+/)*container-toolkit$"),
    "nfd": re.compile(r"(^|/)node-feature-discovery$"),
}
# The same images serve other programs, which own nothing: GPU Feature Discovery, MPS, NFD's other parts.
_OTHER_PROGRAMS = re.compile(
    r"gpu-feature-discovery|mps-control-daemon|config-manager|nfd-(master|gc|topology-updater)"
)
_OTHER_NAMES = re.compile(r"mps-control|feature-discovery-(master|gc|topology)|gpu-feature-discovery")
# Plugins of NVIDIA's network cards and of virtual machines advertise other resources, and AMD's plugin, whose
# image has the name of NVIDIA's (rocm/k8s-device-plugin), other GPUs.
_OTHER_PLUGINS = re.compile(r"rdma|sriov|mofed|mellanox|kubevirt|sandbox|rocm|(^|[/\-])amd(gpu)?[/\-]")


@dataclass(frozen=True)
class Claim:
    """A layer that a DaemonSet owns; `unknown` is the value that must be known to be sure, or None."""

    layer: str
    unknown: View | None = None


def repository(image: str) -> str:
    """The image's name without tag and digest, in lower case."""
    name = image.split("@")[0]
    head, colon, tail = name.rpartition(":")
    return (head if colon and "/" not in tail else name).lower()


def claims(resource: Resource) -> list[Claim]:
    """The layers that a DaemonSet owns for certain, and those that an unknown image may hide."""
    if resource.kind != "DaemonSet":
        return []
    found: dict[str, Claim] = {}
    for workload in workloads(resource):
        owners = [o for references in workload.owners for o in references.peek_elements()]
        if any(owner["kind"].peek_text() in ("ClusterPolicy", "NVIDIADriver") for owner in owners):
            continue  # The operator's own operand, adopted or read: the operator already counts.
        containers = list(workload.containers())
        plugs_in = _mounts_device_plugins(workload.spec)
        name = resource.props["metadata"]["name"].peek_text() or resource.name
        if _OTHER_NAMES.search(name) is None:
            for layer, pattern in _NAMES.items():
                if pattern.search(name):
                    found[layer] = Claim(layer)
        for container in containers:
            for claim in _claims_of_image(container, plugs_in):
                if claim.layer == "devicePlugin" and _OTHER_PLUGINS.search(name):
                    continue
                if claim.unknown is None or claim.layer not in found:
                    found[claim.layer] = claim
    return list(found.values())


def _claims_of_image(container: Container, plugs_in: bool) -> list[Claim]:
    view = container.view
    image = view["image"]
    if image.unknown:
        # Only a container with these powers over the node can be an owner; others need no answer.
        if plugs_in:
            return [Claim("devicePlugin", image)]
        privileged = view["securityContext"]["privileged"].peek() is True
        return [Claim("driver", image), Claim("toolkit", image)] if privileged else []
    name = repository(image.peek_text() or "")
    words = [w.peek_text() or "" for part in ("command", "args") for w in view[part].peek_elements()]
    if any(_OTHER_PROGRAMS.search(word) for word in words):
        return []
    layers = [layer for layer, pattern in _IMAGES.items() if pattern.search(name)]
    if plugs_in and "nvidia" in name:
        layers.append("devicePlugin")
    other = _OTHER_PLUGINS.search(name) is not None
    return [Claim(layer) for layer in layers if not (other and layer == "devicePlugin")]


def _mounts_device_plugins(spec: View) -> bool:
    paths = (volume["hostPath"]["path"].peek_text() or "" for volume in spec["volumes"].peek_elements())
    return any(path.rstrip("/").startswith(DEVICE_PLUGIN_FOLDER) for path in paths)
