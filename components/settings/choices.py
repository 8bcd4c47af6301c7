"""Choices of kind: what this release can do, what a later one brings, and what could never work."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from components.settings.base import refusal
from components.settings.explain import closest
from components.settings.formats import DnsSubdomain
from components.settings.problems import kind_of


def _later(known: str, later: dict[str, str], what: str) -> Callable[[Any], Any]:
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in later}

    def check(value: Any) -> Any:
        if isinstance(value, str) and value != known:
            name = plain.get(re.sub(r"[^a-z0-9]", "", value.lower()), value)
            reason = later.get(name, f"there is no {what} of this name")
            wait = f", or wait for the release that brings {name}" if reason.endswith("later release") else ""
            raise refusal(reason, f"write {known}{wait}")
        return value

    return check


_NOT_SHARED = "it is gone with the Pod or tied to one node, so the next attempt can not read it"
_STORAGE_KINDS = {
    **{
        kind: f"checkpoint storage on {kind} comes in a later release"
        for kind in ("efs", "fsx-lustre", "filestore", "s3", "gcs")
    },
    **dict.fromkeys(("emptyDir", "empty-dir", "hostPath", "local", "ebs", "pd", "disk"), _NOT_SHARED),
}
# StorageClasses that clouds and local clusters ship and whose volumes one node alone can mount.
_SINGLE_NODE_CLASSES = frozenset(
    "gp2 gp3 io1 io2 ebs-sc standard-rwo premium-rwo managed-csi managed-csi-premium managed-premium"
    " local-path local-storage hostpath microk8s-hostpath emptyDir emptydir empty-dir".split()
)
_ACCESS_MODES = {
    "RWO": "ReadWriteOnce",
    "RWOP": "ReadWriteOncePod",
    "ROX": "ReadOnlyMany",
    "RWX": "ReadWriteMany",
}
_NARROW_MODES = {
    "ReadWriteOnce": (
        "one node alone can mount the volume, so a run that moves to another node loses its checkpoints"
    ),
    "ReadWriteOncePod": "one Pod alone can mount the volume, so nothing else can read its checkpoints",
    "ReadOnlyMany": "no checkpoint can be written to it",
}


def _storage_class(value: Any) -> Any:
    if isinstance(value, str) and value in _SINGLE_NODE_CLASSES:
        raise refusal(
            "its volumes are mounted by one node at a time or live on one node, so a run that moves to"
            " another node loses its checkpoints",
            "write the class of a shared file system (ReadWriteMany), such as EFS, Filestore, FSx for Lustre,"
            " NFS or CephFS",
        )
    return value


def _access_mode(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and value:
        # As a claim's spec has it.
        return _access_mode(value[0]) if len(value) == 1 and value[0] != "ReadWriteMany" else value
    if not isinstance(value, str) or value == "ReadWriteMany":
        return value
    plain = re.sub(r"[^a-z]", "", value.lower())
    reason = next(
        (
            _NARROW_MODES[mode]
            for short, mode in _ACCESS_MODES.items()
            if plain in (short.lower(), mode.lower()) and mode in _NARROW_MODES
        ),
        None,
    )
    if reason:
        raise refusal(reason, "write ReadWriteMany, with the class of a shared file system as storageClass")
    raise refusal("it is not the name of an access mode", "write ReadWriteMany")


def _operator_install(value: Any) -> Any:
    if isinstance(value, bool) or value == "never":
        raise refusal(
            "whether there is an operator at all follows from the pools' rows, and only who installs it is a"
            " choice",
            "write always, or existing if the cluster has one",
        )
    return value


def _install(value: Any) -> Any:
    if isinstance(value, bool):
        raise refusal(
            "it is a boolean, and there are more than two ways",
            "write always" if value else "write existing if the cluster has the controller, or never",
        )
    return value


_NAMES_OF_POOLS = {
    "aws": "eks",
    "amazon": "eks",
    "google": "gke",
    "gcp": "gke",
    "aks": "existing",
    "azure": "existing",
    "managed": "eks, gke or existing",
    "onprem": "self-managed",
    "baremetal": "self-managed",
}


def unknown_pool_kind(value: Any, kinds: Collection[str]) -> tuple[str, str]:
    """Reason and fix for a `kind` that no pool has."""
    if not isinstance(value, str):
        return f"it is {kind_of(value)}, and text is needed", f"write one of {', '.join(kinds)}"
    meant = closest(value, kinds) or _NAMES_OF_POOLS.get(re.sub(r"[^a-z0-9]", "", value.lower()))
    return "there is no kind of node pool of this name", f"write {meant or 'one of ' + ', '.join(kinds)}"


OperatorInstall = Annotated[Literal["always", "existing"], BeforeValidator(_operator_install)]
RunController = Literal["job", "jobset"]
JobSetInstall = Annotated[Literal["auto", "always", "existing", "never"], BeforeValidator(_install)]
StorageKind = Annotated[
    Literal["existing-class"],
    BeforeValidator(_later("existing-class", _STORAGE_KINDS, "kind of checkpoint storage")),
]
SharedStorageClass = Annotated[DnsSubdomain, BeforeValidator(_storage_class)]
SharedAccessMode = Annotated[Literal["ReadWriteMany"], BeforeValidator(_access_mode)]
