"""The image of a GPU pool has a driver or can be given one, and its version does not move by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import EnforcementLevel, Severity

from rules.engine import Config, Resource, Violation, stack_policy
from rules.node_pools import EKS_NODE_GROUPS, NodePool, is_nvidia_instance, is_pool_type, node_pools

_ARM_FAMILIES = ("g5g", "p6e-gb")
_NO_DRIVER = {
    "AL2023": "NVIDIA has no driver image for Amazon Linux 2023 that the operator could install"
    " (gpu-operator#1492)",
    "AL2": "Amazon Linux 2 has had no node images since November 2025",
    "BOTTLEROCKET": "Bottlerocket's root file system is read-only, so that no driver can be installed later",
}


def check_images(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """EKS node groups whose instances have NVIDIA GPUs."""
    _note_instance_types(resources)
    for pool in node_pools(resources):
        if pool.platform != "eks" or pool.resource.type.startswith("kubernetes:"):
            continue
        for view in pool.hidden:
            view.note()
        problem = _problem_of(pool)
        if problem:
            yield Violation(f"{pool.title}: amiType {pool.image} {problem}", pool.resource.urn)


def _note_instance_types(resources: Sequence[Resource]) -> None:
    """Whether an image without a driver is right depends on the instances."""
    for r in resources:
        image = r.props["amiType"].peek_text() or ""
        types = r.props["instanceTypes"]
        if image.split("_")[0] in _NO_DRIVER and r.type in EKS_NODE_GROUPS:
            for each in types.elements():
                each.value()


def _problem_of(pool: NodePool) -> str | None:
    image = pool.image
    if image in ("", "CUSTOM"):
        return None
    arm = any(name.startswith(_ARM_FAMILIES) for name in pool.instance_types)
    known = [name for name in pool.instance_types if name]
    family = "BOTTLEROCKET" if image.startswith("BOTTLEROCKET") else "AL2023"
    right = f"{family}_{'ARM' if arm else 'x86'}_64_NVIDIA"
    if image == "AL2_x86_64_GPU":
        return f"gets no more images: AWS ended Amazon Linux 2 for EKS in November 2025. Write {right}."
    if "NVIDIA" not in image:
        why = _NO_DRIVER.get(image.split("_")[0])
        gpus = next((name for name in known if is_nvidia_instance(name)), "")
        if why is None or not gpus:
            return None
        return (
            f"has no NVIDIA driver although {gpus} has GPUs, and nobody can bring one: {why}. Write {right}."
        )
    if known and all(is_nvidia_instance(name) for name in known) and arm != ("_ARM_" in image):
        return f"is of another processor architecture than {known[0]}. Write {right}."
    if known and not any(is_nvidia_instance(name) for name in known):
        return f"is for GPUs, but {known[0]} has none. Choose another instance type."
    return None


def check_versions(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Pools whose driver comes with an image or from the cloud: the version of that is the driver's
    version.
    """
    for pool in node_pools(resources):
        for view in pool.hidden:
            view.note()
        missing = None if pool.hidden else _missing_version(pool)
        if missing:
            yield Violation(
                f"{pool.title}: {missing}, so the driver's version changes when nodes are made anew. Set"
                " it, and change it on purpose.",
                pool.resource.urn,
            )


def _missing_version(pool: NodePool) -> str | None:
    props = pool.resource.props
    if pool.platform == "gke" and pool.driver_is_default:
        return (
            "guestAccelerators[0].gpuDriverInstallationConfig.gpuDriverVersion is not set and what GKE does"
            " then depends on its version"
        )
    if pool.platform != "eks" or "NVIDIA" not in pool.image or pool.resource.type.startswith("kubernetes:"):
        return None
    release = props["releaseVersion"]
    return (
        None if release.exists or props["launchTemplate"]["imageId"].exists else "releaseVersion is not set"
    )


GPU_POOL_IMAGE = stack_policy(
    name="gpu-pool-image",
    description="The image of a GPU pool has the driver, or somebody can install it there.",
    severity=Severity.HIGH,
    remediation=(
        "Use AL2023_x86_64_NVIDIA, AL2023_ARM_64_NVIDIA or a Bottlerocket NVIDIA variant of the instances'"
        " architecture, or an image of your own (CUSTOM)."
    ),
    check=check_images,
    wants=is_pool_type,
)

DRIVER_VERSION_PINNED = stack_policy(
    name="driver-version-pinned",
    description="The version of a pool's driver is written down.",
    severity=Severity.LOW,
    remediation="Set releaseVersion of an EKS node group, and gpuDriverVersion of a GKE accelerator.",
    check=check_versions,
    level=EnforcementLevel.ADVISORY,
    wants=is_pool_type,
)
