"""The provisioner of the StorageClass `rehearsal-rwx`: a folder that every node sees, per claim.

The kernel of a small machine often has no NFS client, so the ReadWriteMany volume is a `local` volume on a folder
of this machine that all nodes have at the same path. A `local` volume honours fsGroup, a hostPath volume does not.
Volumes are retained: a claim that is made again under the same namespace and name finds its files again, and no
other claim ever sees them. Run as `python -m rehearsal.provisioner`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import urllib3
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from rehearsal.api import core
from rehearsal.state import state_dir

STORAGE_CLASS = "rehearsal-rwx"
SHARED_GROUP = 1000


def volumes_dir() -> Path:
    return state_dir() / "volumes"


def provision(api: client.CoreV1Api, claim: client.V1PersistentVolumeClaim) -> None:
    """Give a pending claim its volume: a new one, or the retained one of an earlier claim of the same name."""
    if claim.spec.storage_class_name != STORAGE_CLASS or claim.metadata.deletion_timestamp or claim.spec.volume_name:
        return
    namespace, name = claim.metadata.namespace, claim.metadata.name
    # A namespace has no dot in its name, so that no two claims share a volume's name.
    volume_name = f"{STORAGE_CLASS}.{namespace}.{name}"
    folder = volumes_dir() / namespace / name
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, 0, SHARED_GROUP)
    folder.chmod(0o2775)
    reference = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": namespace, "name": name, "uid": claim.metadata.uid,
    }  # fmt: skip
    spec = {
        "capacity": {"storage": claim.spec.resources.requests["storage"]},
        "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": STORAGE_CLASS,
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


def main() -> None:
    api = core()
    while True:
        try:
            for event in watch.Watch().stream(api.list_persistent_volume_claim_for_all_namespaces, timeout_seconds=300):
                provision(api, event["object"])
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            print(f"watching claims: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
