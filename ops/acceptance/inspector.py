"""Looks at the checkpoint volume from inside the cluster: a small Pod of the run's image that only reads.

It also removes the directories of the acceptance's own runs at the end, and no others.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from components.planning.node_pools import NodePoolPlan
from components.settings.run import CHECKPOINT_ROOT, RunSettings
from ops.acceptance import convert
from ops.acceptance.facts import Comparison, Json, Snapshot
from ops.acceptance.recorder import ACCEPTANCE_LABEL, NotInTime, utc_now
from ops.acting import Answer
from ops.errors import OpsError
from ops.recover import ONLOOKER

CONTAINER = "inspector"
PREFIX = "accept-"
READY_SECONDS = 120.0
READ_SECONDS = 120.0
POLL_SECONDS = 0.3

# Ends at once when it is told to: the first process of a container has no default for SIGTERM.
WAIT = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
REMOVE = """
import shutil, sys
from pathlib import Path
root = Path(sys.argv[1])
for pattern in sys.argv[2:]:
    if "/" in pattern or not pattern.startswith("accept-") or len(pattern) < 16:
        sys.exit(f"{pattern} is no directory of an acceptance")
    for folder in root.glob(pattern):
        for _ in range(5):  # a process that is about to end may still write
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
        else:
            sys.exit(f"{folder} could not be removed")
"""
COMPARE = """
import json, sys
import numpy as np
from safetensors.numpy import load_file
ours, theirs = (load_file(path) for path in sys.argv[1:3])
if ours.keys() != theirs.keys() or any(ours[k].shape != theirs[k].shape for k in ours):
    print(json.dumps({"problem": "the two have other tensors or shapes"}))
else:
    far = [float(np.max(np.abs(ours[k].astype(np.float64) - theirs[k].astype(np.float64)), initial=0.0))
           for k in ours]
    print(json.dumps({"difference": max(far, default=0.0), "tensors": len(far)}))
"""


class Api(Protocol):
    """What is needed of a cluster; ops.acting.ActingKube has it."""

    def get(self, path: str, **query: str) -> dict[str, Any] | None: ...
    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...
    def exec(
        self, namespace: str, pod: str, command: list[str], container: str, seconds: float
    ) -> Answer: ...


@dataclass
class Inspector:
    """The reader of one claim. Pods are made when they are needed, and found by the acceptance's label."""

    api: Api
    acceptance: str
    namespace: str
    claim: str
    run: RunSettings
    pool: NodePoolPlan
    lifetime_seconds: int
    """The Pod ends by itself after this, should nobody be left to remove it."""
    pause: Callable[[float], None]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._made = 0
        self._pods: list[str] = []
        self._nodes: dict[str, str] = {}

    def ready(self, avoid: str = "") -> str:
        """The name of a running Pod, made where there is none; never on the node `avoid`."""
        with self._lock:
            for name in self._pods:
                if not avoid or self._nodes.get(name) != avoid:
                    return name
            self._made += 1
            name = f"{PREFIX}{self.acceptance}-look-{self.claim}"[:57].rstrip("-.") + f"-{self._made}"
            self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", self.manifest(name, avoid))
            self._nodes[name] = self._wait(name)
            self._pods.insert(0, name)
            return name

    def snapshot(self, run_id: str, why: str, avoid: str = "") -> Snapshot:
        """The run's directory now, every hash verified. Raises OpsError or NotInTime if it can not be."""
        at = utc_now()
        command = ["python3", "-m", "trainer.recovery.inspect", f"{CHECKPOINT_ROOT}/{run_id}", "--verify"]
        answer = self._run(command, avoid)
        try:
            found = json.loads(answer.out)
        except ValueError:
            raise OpsError(f"The volume of {run_id} could not be read: {_said(answer)}") from None
        digest = hashlib.sha256(answer.out.encode()).hexdigest()
        return Snapshot(at=at, done_at=utc_now(), why=why, inspect=found, sha256=digest)

    def compare(self, ours: Json, theirs: Json, run_id: str, reference_id: str) -> Comparison:
        """Two artifacts of the same name, as the runs' `result.json` have them (name, path, sha256).

        Only where the hashes differ the numbers are read.
        """
        same = {"artifact": str(ours.get("name")), "sha256": str(ours.get("sha256")),
                "reference_sha256": str(theirs.get("sha256"))}  # fmt: skip
        if same["sha256"] == same["reference_sha256"]:
            return Comparison(**same, max_abs_difference=0.0)
        paths = [f"{CHECKPOINT_ROOT}/{run_id}/{ours.get('path')}",
                 f"{CHECKPOINT_ROOT}/{reference_id}/{theirs.get('path')}"]  # fmt: skip
        answer = self._run(["python3", "-c", COMPARE, *paths])
        try:
            told = json.loads(answer.out)
        except ValueError:
            return Comparison(**same, problem=f"The numbers could not be read: {_said(answer)}")
        return Comparison(
            **same,
            max_abs_difference=told.get("difference"),
            tensors=int(told.get("tensors", 0)),
            problem=str(told.get("problem", "")),
        )

    def remove(self, run_ids: list[str]) -> str:
        """Remove the directories of these runs (names, or shell patterns); empty, or what went wrong."""
        if not run_ids:
            return ""
        answer = self._run(["python3", "-c", REMOVE, CHECKPOINT_ROOT, *run_ids])
        return "" if answer.code == 0 else f"Directories on {self.claim} were left: {_said(answer)}"

    def manifest(self, name: str, avoid: str) -> dict[str, Any]:
        """The Pod: the run's image and user, no GPU, no token, the same security as the run's Pod."""
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": self.lifetime_seconds,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": self.pool.node_selector,
            "tolerations": self.pool.tolerations,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": self.run.user_id,
                "runAsGroup": self.run.group_id,
                "fsGroup": self.run.group_id,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": CONTAINER,
                    "image": self.run.image,
                    "imagePullPolicy": self.run.image_pull_policy,
                    "command": ["python3", "-c", WAIT],
                    # One thread: the limit is far below what numpy would start threads for.
                    "env": [
                        {"name": "HOME", "value": "/tmp"},
                        {"name": "OPENBLAS_NUM_THREADS", "value": "1"},
                    ],
                    "resources": {
                        "requests": {"cpu": "20m", "memory": "64Mi"},
                        "limits": {"cpu": "1", "memory": "512Mi"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "checkpoints", "mountPath": CHECKPOINT_ROOT},
                        {"name": "tmp", "mountPath": "/tmp"},
                    ],
                }
            ],
            "volumes": [
                {"name": "checkpoints", "persistentVolumeClaim": {"claimName": self.claim}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }
        if self.run.image_pull_secrets:
            spec["imagePullSecrets"] = [{"name": secret} for secret in self.run.image_pull_secrets]
        if avoid:
            other = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [avoid]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [other]}]}}}  # fmt: skip
        labels = {
            ACCEPTANCE_LABEL: self.acceptance,
            ONLOOKER: "true",
            "app.kubernetes.io/part-of": "holdfast",
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": spec,
        }

    def _wait(self, name: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        for _ in range(int(READY_SECONDS / POLL_SECONDS)):
            pod = self.api.get(path) or {}
            if convert.at(pod, "status", "phase") == "Running":
                return str(convert.at(pod, "spec", "nodeName") or "")
            self.pause(POLL_SECONDS)
        state = next(
            (c.message or c.reason for c in convert.conditions(pod) if c.status == "False"), "no word"
        )
        raise NotInTime(
            f"After {READY_SECONDS:.0f} s the Pod {name} that reads the volume did not run: {state}."
        )

    def _run(self, command: list[str], avoid: str = "") -> Answer:
        from kubernetes.client.exceptions import ApiException

        name = self.ready(avoid)
        try:
            return self.api.exec(self.namespace, name, command, CONTAINER, READ_SECONDS)
        except ApiException:  # it was evicted, or its node went: another one, once
            with self._lock:
                self._pods = [known for known in self._pods if known != name]
            return self.api.exec(self.namespace, self.ready(avoid), command, CONTAINER, READ_SECONDS)


def _said(answer: Answer) -> str:
    words = (answer.err or answer.out).strip().splitlines()
    return words[-1] if words else f"exit code {answer.code}, without a word"
