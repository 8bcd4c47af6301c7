"""The provisioner of the StorageClass `rehearsal-rwx`: a folder that every node sees, per claim.

The kernel of a small machine often has no NFS client, so the ReadWriteMany volume is a `local` volume on a folder
of this machine that all nodes have at the same path. A `local` volume honours fsGroup, a hostPath volume does not.
Volumes are retained: a claim that is made again under the same namespace and name finds its files again, and no
other claim ever sees them. A claim of the class `rehearsal-rwx-bounded` gets a volume that is full at the claim's size, and
goes with the claim. Run as `python -m rehearsal.provisioner`.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import urllib3
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.utils.quantity import parse_quantity

from rehearsal.api import core
from rehearsal.volumes import MODE, SHARED_GROUP, bound, release, volumes_dir

STORAGE_CLASS = "rehearsal-rwx"
BOUNDED_CLASS = "rehearsal-rwx-bounded"
LARGEST_BOUNDED = 1024**3  # bytes: they are memory


def provision(api: client.CoreV1Api, claim: client.V1PersistentVolumeClaim) -> None:
    """Give a pending claim its volume: a new one, or the retained one of an earlier claim of the same name."""
    storage_class = claim.spec.storage_class_name
    if storage_class not in (STORAGE_CLASS, BOUNDED_CLASS) or claim.metadata.deletion_timestamp:
        return
    namespace, name = claim.metadata.namespace, claim.metadata.name
    bounded = storage_class == BOUNDED_CLASS
    if claim.spec.volume_name and not bounded:
        return
    # A namespace has no dot in its name, so that no two claims share a volume's name.
    volume_name = f"{storage_class}.{namespace}.{name}"
    folder = _folder(namespace, name)
    folder.mkdir(parents=True, exist_ok=True)
    if bounded:
        size = int(parse_quantity(claim.spec.resources.requests["storage"]))
        if size > LARGEST_BOUNDED:
            print(f"{namespace}/{name}: a bounded volume has at most {LARGEST_BOUNDED} bytes", flush=True)
            return
        bound(folder, size)  # again, with nothing in it, after a restart of the machine
    if claim.spec.volume_name:
        return
    os.chown(folder, 0, SHARED_GROUP)
    folder.chmod(MODE)
    reference = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": namespace, "name": name, "uid": claim.metadata.uid,
    }  # fmt: skip
    spec = {
        "capacity": {"storage": claim.spec.resources.requests["storage"]},
        "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",  # what goes is removed below
        "storageClassName": storage_class,
        "volumeMode": "Filesystem",
        "local": {"path": str(folder)},
        "claimRef": reference,
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
                ]
            }
        },
    }
    try:
        api.create_persistent_volume({"metadata": {"name": volume_name}, "spec": spec})
    except ApiException as error:
        if error.status != 409:
            raise
        # A retained volume of the claim that had this name before: bind it to the new one.
        api.patch_persistent_volume(volume_name, {"spec": {"claimRef": reference, "capacity": spec["capacity"]}})
    print(f"{namespace}/{name}: volume {volume_name} on {folder}", flush=True)


def give_back(api: client.CoreV1Api, claim: client.V1PersistentVolumeClaim) -> None:
    """Remove a bounded volume whose claim is gone. Any other is kept for the next claim of its name."""
    if claim.spec.storage_class_name != BOUNDED_CLASS or not claim.spec.volume_name:
        return
    _remove(api, claim.metadata.namespace, claim.metadata.name, claim.spec.volume_name)


def give_back_unclaimed(api: client.CoreV1Api) -> None:
    """Remove the bounded volumes whose claims went while nobody watched, also where one of that name was made since."""
    claims = {claim.metadata.uid for claim in api.list_persistent_volume_claim_for_all_namespaces().items}
    for volume in api.list_persistent_volume().items:
        claimed = volume.spec.claim_ref
        if volume.spec.storage_class_name == BOUNDED_CLASS and claimed and claimed.uid not in claims:
            _remove(api, claimed.namespace, claimed.name, volume.metadata.name)


def _remove(api: client.CoreV1Api, namespace: str, name: str, volume: str) -> None:
    folder = _folder(namespace, name)
    release(folder)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        api.delete_persistent_volume(volume)
    except ApiException as error:
        if error.status != 404:
            raise
    print(f"{namespace}/{name}: volume {volume} is gone", flush=True)


def _folder(namespace: str, name: str) -> Path:
    return volumes_dir() / namespace / name


def main() -> None:
    api = core()
    while True:
        try:
            give_back_unclaimed(api)  # a watch begins with the claims that are there, and tells of none that went before
            for event in watch.Watch().stream(api.list_persistent_volume_claim_for_all_namespaces, timeout_seconds=300):
                act = give_back if event["type"] == "DELETED" else provision
                act(api, event["object"])
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            print(f"watching claims: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
