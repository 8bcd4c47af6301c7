"""The controller: makes the cluster look as the ClusterPolicy asks, every half second until it does.

A loop of a few small reads in place of watches: it is simpler, survives every restart of the API server by
itself, and costs well under one percent of a core once all is ready.
"""

from .process import end_on_signals, say

if __name__ == "__main__":
    end_on_signals()

import os
import time
from collections.abc import Mapping
from typing import Any

from .desired import Desired, Node, Verdict, desired_state, judge, status
from .kube import METADATA_LIST, TRANSIENT, ApiError, Json, Kube
from .operands import HASH_ANNOTATION, MANAGER, PART_OF, Site

_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
_RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_SELECT_OURS = f"?labelSelector=app.kubernetes.io%2Fmanaged-by%3D{MANAGER}"

_BUSY_SECONDS = 0.5
_CALM_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 10.0


class Controller:
    """One operator in one namespace. `image` is what the operands run; it is this program's own image."""

    def __init__(self, kube: Kube, namespace: str, image: str) -> None:
        self._kube, self._namespace, self._image = kube, namespace, image
        self._said: dict[str, str] = {}

    def reconcile(self) -> bool:
        """Bring the cluster one step nearer to the wish; true when nothing is left to do or to wait for.

        Raises one of kube.TRANSIENT.
        """
        policy = self._policy()
        if policy is None:
            self._say("policy", "no ClusterPolicy: nothing to do")
            return False
        name = policy["metadata"]["name"]
        site = Site(self._namespace, self._image, owner=(name, policy["metadata"]["uid"]))
        desired = desired_state(policy.get("spec") or {}, self._nodes(), site)
        for node, labels in desired.node_labels.items():
            self._kube.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": dict(labels)}})
            say(f"node {node}: {', '.join(f'{label}={value}' for label, value in labels.items())}")
        self._keep_runtime_classes(desired)
        live = self._keep_daemon_sets(desired)
        verdict = judge(desired, live)
        self._report(policy, verdict)
        return verdict.ready and not desired.node_labels

    def _policy(self) -> Json | None:
        """The oldest ClusterPolicy that is not being deleted; any other one is marked `ignored`."""
        try:
            found = self._kube.get(_POLICIES)["items"]
        except ApiError as error:
            if error.status == 404:  # the definition itself is not there yet
                return None
            raise
        found.sort(key=lambda policy: policy["metadata"]["creationTimestamp"])
        first, *others = found or [None]
        for other in others:
            if (other.get("status") or {}).get("state") != "ignored":
                patch = {"status": {"state": "ignored", "namespace": self._namespace}}
                self._kube.merge(f"{_POLICIES}/{other['metadata']['name']}/status", patch)
        if first is None or "deletionTimestamp" in first["metadata"]:
            return None
        return first

    def _nodes(self) -> list[Node]:
        found = self._kube.get("/api/v1/nodes", accept=METADATA_LIST)["items"]
        return [Node(one["metadata"]["name"], one["metadata"].get("labels") or {}) for one in found]

    def _keep_runtime_classes(self, desired: Desired) -> None:
        live = {one["metadata"]["name"]: one for one in self._kube.get(_RUNTIME_CLASSES)["items"]}
        for wanted in desired.runtime_classes:
            name = wanted["metadata"]["name"]
            there = live.pop(name, None)
            if there is not None and not _is_ours(there):
                # Somebody else's class serves as well; taking it over would delete it at an uninstall.
                self._say(name, f"RuntimeClass {name} exists and is not ours: left as it is")
                continue
            self._apply(f"{_RUNTIME_CLASSES}/{name}", wanted, there)
        for name, there in live.items():
            if _is_ours(there):
                self._delete(f"{_RUNTIME_CLASSES}/{name}")

    def _keep_daemon_sets(self, desired: Desired) -> Mapping[str, Json]:
        folder = f"/apis/apps/v1/namespaces/{self._namespace}/daemonsets"
        live = {one["metadata"]["name"]: one for one in self._kube.get(folder + _SELECT_OURS)["items"]}
        for name in desired.retired:
            if live.pop(name, None) is not None:
                self._delete(f"{folder}/{name}")
        for wanted in desired.daemon_sets:
            name = wanted["metadata"]["name"]
            live[name] = self._apply(f"{folder}/{name}", wanted, live.get(name))
        return live

    def _apply(self, path: str, wanted: Json, there: Json | None) -> Json:
        if there is not None and _hash(there) == _hash(wanted):
            return there
        made = self._kube.apply(path, wanted, MANAGER)
        say(f"{'changed' if there else 'created'} {wanted['kind']} {wanted['metadata']['name']}")
        return made

    def _delete(self, path: str) -> None:
        self._kube.delete(path)
        say(f"deleted {path}")

    def _report(self, policy: Json, verdict: Verdict) -> None:
        before: Mapping[str, Any] = policy.get("status") or {}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        after = status(verdict, before, self._namespace, now)
        if after != before:
            self._kube.merge(f"{_POLICIES}/{policy['metadata']['name']}/status", {"status": after})
        self._say("policy", f"{after['state']}, {verdict.reason}: {verdict.message}")

    def _say(self, topic: str, sentence: str) -> None:
        """A sentence of a loop: said once, until another one on the same topic takes its place."""
        if self._said.get(topic) != sentence:
            self._said[topic] = sentence
            say(sentence)


def _hash(made: Json) -> str | None:
    return (made["metadata"].get("annotations") or {}).get(HASH_ANNOTATION)


def _is_ours(made: Json) -> bool:
    return bool((made["metadata"].get("labels") or {}).get("app.kubernetes.io/part-of") == PART_OF)


def main() -> None:
    """Run until SIGTERM. An API server that is away, or refuses, is asked again with growing pauses."""
    controller = Controller(Kube.in_cluster(), os.environ["OPERATOR_NAMESPACE"], os.environ["OPERAND_IMAGE"])
    say(f"GPU Operator stand-in (not NVIDIA's) in namespace {os.environ['OPERATOR_NAMESPACE']}")
    pause = _BUSY_SECONDS
    while True:
        try:
            settled = controller.reconcile()
        except TRANSIENT as error:
            say(f"the API server did not take it, trying again in {pause:.1f} s: {error}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            continue
        pause = _BUSY_SECONDS
        time.sleep(_CALM_SECONDS if settled else _BUSY_SECONDS)


if __name__ == "__main__":
    main()
