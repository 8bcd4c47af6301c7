"""A cluster in memory: the few API calls that the dynamic resources make, with resource versions as the real one has."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from components.cluster_resources.errors import ChangedMeanwhile

Json = dict[str, Any]


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386, as the API server applies it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


class FakeCluster:
    """Objects by path. `before_patch` runs between a caller's read and its write: the place for somebody else's write."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.lists: dict[str, list[Json]] = {}
        self.before_patch: Callable[[str], None] = lambda path: None
        self.patches: list[tuple[str, Json]] = []
        self.deletes: list[tuple[str, Json]] = []
        self._version = 100

    def add_node(self, name: str, labels: dict[str, str] | None = None, taints: list[Json] | None = None) -> None:
        self.put(f"/api/v1/nodes/{name}", {
            "metadata": {"name": name, "labels": labels or {}, "annotations": {}},
            "spec": {"taints": taints} if taints else {},
        })

    def put(self, path: str, body: Json) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = body

    def node(self, name: str) -> Json:
        return self.objects[f"/api/v1/nodes/{name}"]

    def edit(self, name: str, change: Callable[[Json], None]) -> None:
        """Somebody else's write to a node."""
        node = copy.deepcopy(self.node(name))
        change(node)
        self.put(f"/api/v1/nodes/{name}", node)

    def get(self, path: str, **query: str) -> Json | None:
        if path in self.lists:
            return {"items": copy.deepcopy(self.lists[path])}
        if path == "/api/v1/nodes":
            return {"items": [copy.deepcopy(o) for p, o in self.objects.items() if p.startswith(path + "/")]}
        return copy.deepcopy(self.objects.get(path))

    def patch(self, path: str, body: Json) -> Json | None:
        self.before_patch(path)
        if path not in self.objects:
            return None
        if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            raise ChangedMeanwhile("the object has been modified")
        self.patches.append((path, body))
        self.put(path, merge_patch(self.objects[path], body))
        return self.objects[path]

    def delete(self, path: str, body: Json) -> Json | None:
        self.deletes.append((path, body))
        return self.objects.pop(path, None)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()
