"""What is done through the API: to a run's Pod, its program and its files, and to a node (cordon)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from components.settings.run import CHECKPOINT_ROOT
from ops.acceptance.facts import Json
from ops.acting import Answer
from ops.errors import OpsError

CORDON_NOTE = "holdfast.dev/acceptance-cordon"
"""Annotation on a node that an acceptance has cordoned: its id. Without it the cordon is not ours."""
FILLER = f"{CHECKPOINT_ROOT}/accept-filler"
TRIES = 5

# The program is the child of PID 1, which is the supervisor; what exec starts has no parent in the container.
_CHILD = """
import json, os, signal, sys, time
from pathlib import Path
def child():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[1] == "1" and fields[0] not in "ZX":
                return int(entry.name)
    sys.exit("the supervisor has no program")
"""
KILL = (
    _CHILD
    + """
pid = child()
print(json.dumps({"pid": pid}), flush=True)
time.sleep(0.2)  # what was printed goes with the container, if it is not on its way by then
os.kill(pid, signal.SIGKILL)
"""
)
# Stopped first, so that no newer checkpoint is sealed between the damage and the end. Killed last, because
# the container goes with its program, and this script with the container.
CORRUPT = (
    _CHILD
    + """
pid = child()
os.kill(pid, signal.SIGSTOP)
for _ in range(200):
    if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
        break
    time.sleep(0.01)
try:
    folders = [p for p in Path(sys.argv[1]).glob("generation-*/step-*") if (p / "manifest.json").is_file()]
    newest = max(folders, key=lambda p: int(p.name.removeprefix("step-")))
    files = [p for p in newest.rglob("*") if p.is_file() and p.name != "manifest.json"]
    victim = max(files, key=lambda p: p.stat().st_size)
    offset = victim.stat().st_size // 2
    victim.chmod(0o644)
    with victim.open("r+b") as stream:
        stream.seek(offset)
        old = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([old[0] ^ 1]))
        stream.flush()
        os.fsync(stream.fileno())
    print(json.dumps({"pid": pid, "step": int(newest.name.removeprefix("step-")), "file": victim.name,
                      "folder": str(newest), "offset": offset}), flush=True)
    time.sleep(0.2)
finally:
    os.kill(pid, signal.SIGKILL)
"""
)
# Topped up for a while: a save that is under way may give room back when it fails or removes an older one.
FILL = """
import errno, json, os, sys, time
until, written = None, 0
with open(sys.argv[1], "ab", buffering=0) as stream:
    while until is None or time.monotonic() < until:
        for size in (1 << 20, 1 << 16, 4096, 1):
            try:
                while True:
                    written += stream.write(b"x" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        until = until or time.monotonic() + float(sys.argv[2])
        time.sleep(0.05)
    place = os.statvfs(os.path.dirname(sys.argv[1]))
print(json.dumps({"bytes": written, "size": place.f_blocks * place.f_frsize,
                  "free": place.f_bavail * place.f_frsize}))
"""
FREE = """
import json, os, sys
size = os.stat(sys.argv[1]).st_size
os.unlink(sys.argv[1])
print(json.dumps({"bytes": size}))
"""


class Api(Protocol):
    """What is needed of a cluster; ops.acting.ActingKube has it."""

    def get(self, path: str, **query: str) -> dict[str, Any] | None: ...
    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...
    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...
    def delete(self, path: str, **options: Any) -> bool: ...
    def exec(self, namespace: str, pod: str, command: list[str]) -> Answer: ...


@dataclass(frozen=True)
class ClusterFaults:
    """One acceptance's hand on one namespace. Each fault answers with its detail for the record."""

    api: Api
    namespace: str
    acceptance: str

    def delete_pod(self, pod: str) -> Json:
        """A plain deletion: SIGTERM, the Pod's own grace period, no DisruptionTarget condition."""
        found = self.api.delete(self._pod(pod))
        return {} if found else {"missing": True}

    def evict(self, pod: str) -> Json:
        """The Eviction API, as drains and autoscalers use it. A disruption budget may refuse: 429."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": pod, "namespace": self.namespace}}  # fmt: skip
        self.api.create(f"{self._pod(pod)}/eviction", body)
        return {}

    def kill_program(self, pod: str) -> Json:
        return self._python(pod, KILL)

    def corrupt_and_kill(self, pod: str, run_id: str) -> Json:
        """Flip one bit in the largest file of the newest sealed checkpoint, then SIGKILL the program."""
        return self._python(pod, CORRUPT, f"{CHECKPOINT_ROOT}/{run_id}")

    def fill_volume(self, pod: str, seconds: float = 1.5) -> Json:
        return self._python(pod, FILL, FILLER, f"{seconds:g}")

    def free_volume(self, pod: str) -> Json:
        return self._python(pod, FREE, FILLER)

    def cordon(self, node: str) -> bool:
        """False where somebody else has cordoned it: then it is not ours to undo."""
        return self._change(node, lambda found: cordon_change(found, self.acceptance))

    def uncordon(self, node: str) -> bool:
        """Undo our own cordon; False where it is not ours, or gone."""
        return self._change(node, lambda found: uncordon_change(found, self.acceptance))

    def _change(self, name: str, change: Callable[[Json], Json | None]) -> bool:
        from kubernetes.client.exceptions import ApiException

        for _ in range(TRIES):
            node = self.api.get(f"/api/v1/nodes/{name}")
            body = change(node) if node else None
            if body is None:
                return False
            try:
                self.api.patch(f"/api/v1/nodes/{name}", body)
                return True
            except ApiException as error:
                if error.status != 409:
                    raise
        raise OpsError(f"Node {name} was changed by others {TRIES} times in a row.", "Try again.")

    def _python(self, pod: str, script: str, *arguments: str) -> Json:
        answer = self.api.exec(self.namespace, pod, ["python3", "-c", script, *arguments])
        try:
            return dict(json.loads(answer.out.strip().splitlines()[-1]))
        except (ValueError, IndexError):
            words = (answer.err or answer.out).strip().splitlines()
            said = words[-1] if words else f"it ended with {answer.code} and said nothing"
            raise OpsError(f"In Pod {pod} the fault could not be made: {said}.") from None

    def _pod(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"


def cordon_change(node: Json, acceptance: str) -> Json | None:
    """The merge patch that cordons a node and notes that we did; None for one that is cordoned already."""
    if (node.get("spec") or {}).get("unschedulable"):
        return None
    return {
        "metadata": {"resourceVersion": _version(node), "annotations": {CORDON_NOTE: acceptance}},
        "spec": {"unschedulable": True},
    }


def uncordon_change(node: Json, acceptance: str) -> Json | None:
    """The merge patch that undoes the cordon of that acceptance; None for one that is not its own."""
    if (node["metadata"].get("annotations") or {}).get(CORDON_NOTE) != acceptance:
        return None
    return {
        "metadata": {"resourceVersion": _version(node), "annotations": {CORDON_NOTE: None}},
        "spec": {"unschedulable": None},
    }


def _version(node: Json) -> str:
    return str(node["metadata"]["resourceVersion"])
