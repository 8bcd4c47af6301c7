"""What the tests of the components stand on: a cluster in memory, and an engine that records the program."""

from __future__ import annotations

import copy
import functools
import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks, resource, settings
from pulumi.runtime.proto import source_pb2

from components.cluster_resources.errors import ChangedMeanwhile

Json = dict[str, Any]
Change = Callable[[Json], Any]

ROOT = Path(__file__).resolve().parents[3]


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
    """Objects by path. `before_patch` runs between a caller's read and its write: the place for somebody
    else's write.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.lists: dict[str, list[Json]] = {}
        self.before_patch: Callable[[str], None] = lambda path: None
        self.patches: list[tuple[str, Json]] = []
        self.deletes: list[tuple[str, Json]] = []
        self.creates: list[tuple[str, Json, dict[str, str]]] = []
        self.on_create: Callable[[Json], Json | None] = copy.deepcopy
        self._version = 100

    def add_node(
        self, name: str, labels: dict[str, str] | None = None, taints: list[Json] | None = None
    ) -> None:
        self.put(
            f"/api/v1/nodes/{name}",
            {
                "metadata": {"name": name, "labels": labels or {}, "annotations": {}},
                "spec": {"taints": taints} if taints else {},
            },
        )

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

    def create(self, path: str, body: Json, **query: str) -> Json | None:
        self.creates.append((path, body, query))
        return self.on_create(body)

    def delete(self, path: str, body: Json) -> Json | None:
        self.deletes.append((path, body))
        return self.objects.pop(path, None)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def _kind(type_: str) -> str:
    return type_.replace("/", ":").split(":")[-1]


@dataclass(frozen=True)
class Recorded:
    """One registration: inputs, and the options as the engine gets them."""

    type: str
    name: str
    inputs: Json
    parent: str
    """Kind and name."""
    provider: str
    depends_on: frozenset[tuple[str, str]]
    """Kind and name of each."""
    retained: bool
    delete_before_replace: bool
    replace_on_changes: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    """Former URNs, types or names."""
    ignored: frozenset[str] = frozenset()
    """Properties whose changes are ignored."""

    @property
    def kind(self) -> str:
        """The last part of the type."""
        return _kind(self.type)


def _kind_and_name(urn: str) -> tuple[str, str]:
    qualified, name = urn.split("::")[2:]
    return _kind(qualified.split("$")[-1]), name


@dataclass
class Program:
    """Everything that one run of the program registered."""

    resources: list[Recorded] = field(default_factory=list)
    outputs: Json = field(default_factory=dict)

    def one(self, kind: str, name: str | None = None) -> Recorded:
        found = [r for r in self.resources if r.kind == kind and name in (None, r.name)]
        assert len(found) == 1, [r.name for r in found]
        return found[0]

    def reaches(self, resource: Recorded, kind: str, name: str) -> bool:
        """True if `resource` is made after the other one, directly or by way of others."""
        after = {(r.kind, r.name): r.depends_on for r in self.resources}
        seen: set[tuple[str, str]] = set()
        ahead = set(resource.depends_on)
        while ahead:
            one = ahead.pop()
            if one not in seen:
                seen.add(one)
                ahead |= after[one]
        return (kind, name) in seen


class Providers(mocks.Mocks):
    """Answers as the providers would; at a preview what only a real run knows stays unknown."""

    def __init__(self, preview: bool) -> None:
        self.preview = preview

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise AssertionError(f"the program asks {args.token}")

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, Json]:
        known = {
            "Release": {"status": {"revision": 1}},
            "NodePoolMembership": {"nodes": ["gpu-0", "gpu-1"]},
            "GpuReadiness": {"ready": True},
            "JobSetReadiness": {"ready": True},
            "LaunchTemplate": {"latestVersion": 7},
        }
        outputs = dict(args.inputs)
        if not self.preview:
            outputs.update(known.get(_kind(args.typ), {}))
            if "metadata" in outputs:
                outputs["metadata"] = {**outputs["metadata"], "uid": f"uid of {args.name}"}
        return f"{args.name}-id", outputs


class Monitor(mocks.MockMonitor):
    """The mock engine, which also keeps the options."""

    def __init__(self, providers: Providers, program: Program) -> None:
        super().__init__(providers)
        self._program = program

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        if request.type != "pulumi:pulumi:Stack":
            inputs = pulumi.runtime.rpc.deserialize_properties(request.object, keep_unknowns=True)
            inputs.pop("__provider", None)
            recorded = Recorded(
                request.type,
                request.name,
                inputs,
                " ".join(_kind_and_name(request.parent)),
                request.provider,
                frozenset(_kind_and_name(urn) for urn in request.dependencies),
                request.retainOnDelete,
                request.deleteBeforeReplace,
                frozenset(request.replaceOnChanges),
                tuple(alias.urn or alias.spec.type or alias.spec.name for alias in request.aliases),
                frozenset(request.ignoreChanges),
            )
            self._program.resources.append(recorded)
        return super().RegisterResource(request)


@functools.cache
def _dev_config() -> Json:
    return yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]


def _run(change: Change = lambda config: None, *, preview: bool = False) -> Program:
    """Run `__main__.py` with the tracked dev configuration, changed, and record what it registers."""
    config = copy.deepcopy(_dev_config())
    change(config)
    program = Program()
    providers = Providers(preview)
    settings.set_root_resource(None)
    monitor = Monitor(providers, program)
    mocks.set_mocks(providers, project="holdfast", stack="dev", preview=preview, monitor=monitor)
    pulumi.runtime.set_all_config({k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items()})
    with pytest.MonkeyPatch.context() as patch:
        # Where each resource was declared is for an engine's messages; finding it out is a quarter of such a run.
        patch.setattr(resource, "_get_stack_trace", source_pb2.StackTrace)
        patch.chdir(ROOT)
        patch.setenv("HOLDFAST_KUBECONFIG", "/state/kubeconfig")
        patch.setenv("HOLDFAST_TRAINER_IMAGE", "docker.io/holdfast/trainer@sha256:" + "a" * 64)
        patch.setenv("HOLDFAST_OPERATOR_IMAGE", "docker.io/holdfast/rehearsal-gpu-operator@sha256:" + "b" * 64)
        patch.setenv("HOLDFAST_JOBSET_CHART", "./tests/unit/components/data/jobset-chart")
        patch.setenv("HOLDFAST_JOBSET_DIGEST", "c" * 64)
        pulumi.runtime.test(lambda: runpy.run_path(str(ROOT / "__main__.py")) and None)()
    program.outputs = dict(settings.get_root_resource().outputs)
    return program


@pytest.fixture(scope="session")
def program() -> Callable[..., Program]:
    """Runs the program: `program(change, preview=False)`."""
    return _run


@pytest.fixture(scope="session")
def dev() -> Program:
    """One run of the dev environment for all tests that only look."""
    return _run()
