"""Checkpoints outlive the Pod and its node: they are written to a volume that every node can mount."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pulumi_policy import Severity

from rules.checkpoint_paths import CheckpointPlace, checkpoint_places
from rules.engine import Config, Resource, Violation, resource_policy, stack_policy
from rules.pods import Workload, in_scope, may_be_in_scope, may_have_pods, workloads
from rules.views import View

SHARED_MODE = "ReadWriteMany"
_USE_A_SHARED_CLAIM = (
    "Mount a PersistentVolumeClaim with accessModes [ReadWriteMany] of a class that supports it (EFS, FSx"
    " for Lustre, Filestore, NFS, CephFS)"
)

# Volume sources that do not outlive the Pod or its node, or that one node at a time can mount, and why.
_UNFIT_SOURCES = {
    "emptyDir": "an emptyDir is deleted with the Pod",
    "hostPath": "a hostPath stays on one node, and the next attempt may run on another",
    "ephemeral": "an ephemeral volume is deleted with the Pod",
    "gitRepo": "a gitRepo volume is deleted with the Pod",
    "configMap": "a configMap volume is read-only",
    "secret": "a secret volume is read-only",
    "downwardAPI": "a downwardAPI volume is read-only",
    "projected": "a projected volume is read-only",
    "image": "an image volume is read-only",
    "awsElasticBlockStore": "an EBS disk can be mounted on one node at a time",
    "gcePersistentDisk": "a persistent disk can be mounted on one node at a time",
    "azureDisk": "an Azure disk can be mounted on one node at a time",
    "vsphereVolume": "a vSphere disk can be mounted on one node at a time",
    "cinder": "a Cinder disk can be mounted on one node at a time",
    "iscsi": "an iSCSI disk can be mounted on one node at a time",
    "fc": "a Fibre Channel disk can be mounted on one node at a time",
    "rbd": "an RBD image can be mounted on one node at a time",
}


# The clouds' StorageClasses, and the provisioners of others, whose volumes one node alone can mount as a
# folder, whatever the claim asks for. Sources: the CSI drivers' own lists of access modes.
_SINGLE_NODE_CLASSES = frozenset(
    [
        "gp2",
        "gp3",
        "io1",
        "io2",
        "standard-rwo",
        "premium-rwo",
        "managed-csi",
        "managed-csi-premium",
        "managed-premium",
    ]
)
_SINGLE_NODE_PROVISIONERS = frozenset(
    [
        "ebs.csi.aws.com",
        "ebs.csi.eks.amazonaws.com",
        "kubernetes.io/aws-ebs",
        "pd.csi.storage.gke.io",
        "kubernetes.io/gce-pd",
        "disk.csi.azure.com",
        "kubernetes.io/azure-disk",
        "rancher.io/local-path",
        "topolvm.io",
        "openebs.io/local",
    ]
)


@dataclass(frozen=True)
class _Place:
    """A checkpoint place of one container with the volume behind it, if there is one."""

    where: str
    place: CheckpointPlace
    volume: View | None


def _places(workload: Workload) -> list[_Place]:
    if not may_be_in_scope(workload):
        return []
    found = []
    for container in workload.containers():
        for place in checkpoint_places(workload, container.view):
            where = (
                f"{workload.title}, container '{container.name}': checkpoints at {place.path} ({place.why})"
            )
            found.append(_Place(where, place, _volume(workload, place)))
    return found


def _volume(workload: Workload, place: CheckpointPlace) -> View | None:
    if place.mount is None:
        return None
    name = place.mount.volume.text()
    volumes = workload.spec["volumes"]
    for volume in volumes.elements():
        if volume.unknown:
            volume.note()
        elif name is not None and volume["name"].text() == name:
            return volume
    return next(
        (
            t
            for t in workload.claim_templates.elements()
            if name and t["metadata"]["name"].peek_text() == name
        ),
        None,
    )


def problem_of_access_modes(modes: Sequence[str]) -> str | None:
    """Why a claim with these access modes can not hold checkpoints, or None."""
    if SHARED_MODE in modes:
        return None
    shown = ", ".join(modes) or "none"
    return (
        f"its access modes ({shown}) do not include {SHARED_MODE}, so the next attempt on another node can"
        " not mount it"
    )


def check_checkpoint_volumes(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every checkpoint place of a Pod that asks for GPUs or is part of Holdfast, but for claims by name."""
    for workload in workloads(resource):
        problems = []
        for found in _places(workload):
            problem = _problem_of_place(workload, found)
            if problem:
                problems.append(f"{found.where}: {problem}. {_USE_A_SHARED_CLAIM}.")
        if problems and in_scope(workload):
            yield from (Violation(problem) for problem in problems)


def _problem_of_place(workload: Workload, found: _Place) -> str | None:
    if found.place.mount is None:
        if not workload.complete or _mounts_hidden(workload):
            return None
        return "no volume is mounted there, so they are lost with the container's own file system"
    volume = found.volume
    if volume is None:
        return None
    if volume["metadata"].is_mapping:
        return _problem_of_claim_spec(volume["spec"])
    for source, why in _UNFIT_SOURCES.items():
        if volume[source].exists:
            return why
    return None


def _mounts_hidden(workload: Workload) -> bool:
    """An unknown mount may be the one that holds the checkpoints; the mounts themselves are noted already."""
    return any(
        mounts.unknown or any(m.unknown or m["mountPath"].unknown for m in mounts.peek_elements())
        for mounts in (container.view["volumeMounts"] for container in workload.containers())
    )


def _problem_of_claim_spec(spec: View) -> str | None:
    modes = [mode.text() for mode in spec["accessModes"].elements()]
    if spec["accessModes"].unknown or any(mode.unknown for mode in spec["accessModes"].peek_elements()):
        return None
    return problem_of_access_modes([mode for mode in modes if mode])


def _problem_of_claim(claim: Resource, resources: Sequence[Resource]) -> str | None:
    return _problem_of_claim_spec(claim.props["spec"]) or _problem_of_class(claim, resources)


def _problem_of_class(claim: Resource, resources: Sequence[Resource]) -> str | None:
    name = claim.props["spec"]["storageClassName"].text()
    if not name:
        return None
    classes = [r for r in resources if r.kind == "StorageClass" and r.cluster == claim.cluster]
    for other in classes:
        if other.props["metadata"]["name"].peek_text() == name:
            provisioner = other.props["provisioner"].text()
            if provisioner not in _SINGLE_NODE_PROVISIONERS:
                return None
            return f"the volumes of its class '{name}' ({provisioner}) can be mounted on one node at a time"
    for other in classes:
        other.props["metadata"]["name"].value()
    if name in _SINGLE_NODE_CLASSES:
        return f"the volumes of its class '{name}' can be mounted on one node at a time"
    return None


def check_checkpoint_claims(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Claims by name: looked up among the stack's own claims of the same namespace and cluster."""
    claims = [r for r in resources if r.kind == "PersistentVolumeClaim"]
    for resource in resources:
        for workload in workloads(resource):
            for found in _places(workload):
                name = found.volume["persistentVolumeClaim"]["claimName"] if found.volume else None
                if name is None or not name.exists or not in_scope(workload):
                    continue
                claim_name = name.text()
                claim = _claim(claims, resource, claim_name, workload.namespace)
                problem = _problem_of_claim(claim, resources) if claim else None
                if problem:
                    yield Violation(
                        f"{found.where}: claim '{claim_name}' can not hold them, since {problem}. Set"
                        f" accessModes to [{SHARED_MODE}] and a storageClassName that supports it (EFS, FSx"
                        " for Lustre, Filestore, NFS, CephFS).",
                        resource.urn,
                    )


def _claim(claims: Sequence[Resource], user: Resource, name: str | None, namespace: View) -> Resource | None:
    where = namespace.text() or "default"
    if name is None or namespace.unknown:
        return None
    here = [(claim, claim.props["metadata"]) for claim in claims if claim.cluster == user.cluster]
    for claim, metadata in here:
        if metadata["name"].peek_text() == name and (metadata["namespace"].peek_text() or "default") == where:
            if not metadata["namespace"].unknown:
                return claim
    for _, metadata in here:
        # A claim whose name is still open may be the one; one with another name is not.
        if metadata["name"].unknown or (
            metadata["name"].peek_text() == name and metadata["namespace"].unknown
        ):
            metadata["name"].value(), metadata["namespace"].value()
    return None


CHECKPOINT_VOLUME = resource_policy(
    name="checkpoint-volume",
    description="Checkpoints of GPU workloads are written to a volume that outlives the Pod and its node.",
    severity=Severity.CRITICAL,
    remediation=f"{_USE_A_SHARED_CLAIM}, at or above the directory that the program saves to.",
    check=check_checkpoint_volumes,
    wants=may_have_pods,
)

CHECKPOINT_CLAIM = stack_policy(
    name="checkpoint-claim",
    description="The claim behind a checkpoint directory can be mounted by every node (ReadWriteMany).",
    severity=Severity.CRITICAL,
    remediation=(
        f"Set the claim's spec.accessModes to [{SHARED_MODE}] and its storageClassName to a class that"
        " supports it. Claims that other stacks made are not visible to this rule."
    ),
    check=check_checkpoint_claims,
    wants=lambda type_: type_.endswith((":PersistentVolumeClaim", ":StorageClass")) or may_have_pods(type_),
)
