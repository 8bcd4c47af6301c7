"""A cluster in a dictionary, at the boundary of ops.acting.ActingKube: objects by API path, with versions."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubernetes.client.exceptions import ApiException

from ops.acting import Answer
from ops.recover import ONLOOKER

NAMESPACE = "ml-batch"
EMPTY = {"claims": [], "working": [], "result": None, "artifacts": [], "heartbeat": None}


class FakeCluster:
    """`refuse`: beginnings of "METHOD path" that fail with 500. `log`: every change, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.refuse: list[str] = []
        self.conflicts = 0
        """So many patches fail with 409, as if somebody else had been quicker."""
        self.executed: list[Sequence[str]] = []
        self._number = 0
        self._lock = threading.RLock()

    # What is put there

    def put(self, path: str, item: Mapping[str, Any]) -> None:
        with self._lock:
            self._number += 1
            made = copy.deepcopy(dict(item))
            made.setdefault("metadata", {})["resourceVersion"] = str(self._number)
            made["metadata"].setdefault("name", path.rpartition("/")[2])
            made["metadata"].setdefault("uid", f"uid-{self._number}")
            self.objects[path] = made

    def node(self, name: str, ready: str = "True", **more: Any) -> None:
        meta = {"name": name, "labels": {"pool": "gpu"}, "annotations": more.get("annotations", {})}
        self.put(
            f"/api/v1/nodes/{name}",
            {
                "metadata": meta,
                "spec": {"taints": more.get("taints", [{"key": "dedicated", "effect": "NoSchedule"}])},
                "status": {
                    "allocatable": {"nvidia.com/gpu": "1"},
                    "conditions": [
                        {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-02T03:00:00Z"}
                    ],
                },
            },
        )

    def pod(self, name: str, node: str = "gpu-0", namespace: str = NAMESPACE, **more: Any) -> None:
        meta = {
            "name": name,
            "namespace": namespace,
            "labels": more.get("labels", {"holdfast.dev/run": "run-001"}),
            "creationTimestamp": more.get("born", "2026-01-02T03:00:00Z"),
            **more.get("meta", {}),
        }
        container = {"name": "trainer", "command": more.get("command", ["/app/holdfast-run", "--"])}
        self.put(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            {
                "metadata": meta,
                "spec": {"nodeName": node, "containers": [container], **more.get("spec", {})},
                "status": {"phase": more.get("phase", "Running"), **more.get("status", {})},
            },
        )

    # What ActingKube has

    def version(self) -> str:
        return "v1.37.2"

    def clock_offset(self) -> float:
        return 0.0

    def nodes(self) -> list[dict[str, Any]]:
        return self.get("/api/v1/nodes")["items"]  # type: ignore[index]

    def jobs(self, selector: str = "") -> list[dict[str, Any]]:
        return self._find("/apis/batch/v1/namespaces/", "jobs", selector, "")

    def get(self, path: str, **query: Any) -> dict[str, Any] | None:
        self._refused("GET", path)
        with self._lock:
            if path in self.objects:
                return copy.deepcopy(self.objects[path])
        kind = path.rpartition("/")[2]
        if kind in ("pods", "jobs", "jobsets", "events", "nodes", "persistentvolumeclaims", "resourcequotas"):
            found = self._find(path.removesuffix(kind), kind, query.get("labelSelector", ""),
                               query.get("fieldSelector", ""))  # fmt: skip
            return {"items": found, "metadata": {"resourceVersion": str(self._number)}}
        return None

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._refused("POST", path)
        with self._lock:
            if path.endswith("/eviction"):
                self.log.append(f"evict {path.split('/')[-2]}")
                self.objects.pop(path.removesuffix("/eviction"), None)
                return {}
            made = copy.deepcopy(dict(body))
            if ONLOOKER in (made["metadata"].get("labels") or {}):
                made["status"] = {"phase": "Running"}
                made["spec"]["nodeName"] = "gpu-1"
            where = f"{path}/{made['metadata']['name']}"
            if where in self.objects:
                raise ApiException(status=409, reason="AlreadyExists")
            self.put(where, made)
            self.log.append(f"create {made['kind']} {made['metadata']['name']}")
            return copy.deepcopy(self.objects[where])

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._refused("PATCH", path)
        with self._lock:
            item = self.objects[path]
            version = body["metadata"].get("resourceVersion")
            if self.conflicts or version not in (None, item["metadata"]["resourceVersion"]):
                self.conflicts = max(0, self.conflicts - 1)
                raise ApiException(status=409, reason="Conflict")
            merged = _merge(item, {key: value for key, value in body.items()})
            self.put(path, merged)
            self.log.append(f"patch {path.rpartition('/')[2]}")
            return copy.deepcopy(self.objects[path])

    def delete(self, path: str, **_options: Any) -> bool:
        self._refused("DELETE", path)
        with self._lock:
            self.log.append(f"delete {path.rpartition('/')[2]}")
            return self.objects.pop(path, None) is not None

    def watch(self, path: str, **_query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        time.sleep(0.01)
        return iter(())

    def follow_log(self, namespace: str, pod: str) -> Iterator[str]:
        return iter(())

    def exec(
        self, namespace: str, pod: str, command: Sequence[str], container: str = "trainer", seconds: float = 0
    ) -> Answer:
        self._refused("EXEC", pod)
        self.executed.append(list(command))
        return Answer(0, json.dumps(EMPTY), "")

    def _refused(self, method: str, path: str) -> None:
        if any(f"{method} {path}".startswith(beginning) for beginning in self.refuse):
            raise ApiException(status=500, reason=f"no {method} {path}")

    def _find(self, base: str, kind: str, labels: str, fields: str) -> list[dict[str, Any]]:
        with self._lock:
            found = []
            for path, item in self.objects.items():
                folder, _, _ = path.rpartition("/")
                whole = f"{base}{kind}"
                anywhere = base == "/api/v1/" and folder.startswith("/api/v1/namespaces/")
                if folder == whole or (
                    (anywhere or base.endswith("namespaces/")) and folder.endswith(f"/{kind}")
                ):
                    found.append(copy.deepcopy(item))
        node = fields.removeprefix("spec.nodeName=") if fields else ""
        return [
            item
            for item in found
            if _has(item, labels) and (not node or item.get("spec", {}).get("nodeName") == node)
        ]


def _has(item: Mapping[str, Any], selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    for part in [part for part in selector.split(",") if part]:
        key, _, value = part.partition("=")
        if key.startswith("!"):
            if key[1:] in labels:
                return False
        elif key not in labels or (value and labels[key] != value):
            return False
    return True


def _merge(item: Any, change: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(change, Mapping):
        return change
    merged = dict(item) if isinstance(item, Mapping) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
