"""Removing what an acceptance made, by its label: workloads, Pods, claims, directories, marks on nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ops.acceptance.cluster_faults import CORDON_NOTE, ClusterFaults
from ops.acceptance.recorder import ACCEPTANCE_LABEL, JOB_SETS
from ops.errors import describe
from ops.recover import NOTE, ONLOOKER, noted_run, untaint_change

GONE_SECONDS = 90.0


class Api(Protocol):
    """What is needed of a cluster; ops.acting.ActingKube has it."""

    def get(self, path: str, **query: str) -> dict[str, Any] | None: ...
    def nodes(self) -> list[dict[str, Any]]: ...
    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...
    def delete(self, path: str, **options: Any) -> bool: ...


@dataclass
class Cleanup:
    """One acceptance's leavings in one namespace. Nothing raises: what is left is told in sentences."""

    api: Api
    namespace: str
    acceptance: str
    job_sets: bool
    pause: Callable[[float], None] = time.sleep

    def workloads(self, run_id: str = "") -> list[str]:
        """Remove the Jobs and JobSets (of one run, if given) and wait until their Pods are gone."""
        problems: list[str] = []
        selector = f"{ACCEPTANCE_LABEL}={self.acceptance}" + (f",holdfast.dev/run={run_id}" if run_id else "")
        # A JobSet first: it would make its child Job anew.
        for path in self._kinds():
            problems += self._remove(path, selector)
        problems += self._until_gone(selector)
        return problems

    def onlookers(self) -> list[str]:
        """Remove the Pods that read the volume, and the claims that were made for single runs."""
        selector = f"{ACCEPTANCE_LABEL}={self.acceptance}"
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        claims = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        problems = self._remove(pods, f"{selector},{ONLOOKER}") + self._remove(claims, selector)
        # The next acceptance takes what it finds for another one at work.
        return problems + self._until_gone(selector, but="")

    def nodes(self) -> list[str]:
        """Undo a cordon and a taint that this acceptance has left on a node."""
        problems = []
        try:
            for node in self.api.nodes():
                notes = node["metadata"].get("annotations") or {}
                name = node["metadata"]["name"]
                if notes.get(CORDON_NOTE) == self.acceptance:
                    ClusterFaults(self.api, self.namespace, self.acceptance).uncordon(name)  # type: ignore[arg-type]
                if NOTE in notes and is_run_of(noted_run(node), self.acceptance):
                    node = self.api.get(f"/api/v1/nodes/{name}") or node
                    if change := untaint_change(node):
                        self.api.patch(f"/api/v1/nodes/{name}", change)
        except Exception as error:  # told, so that the rest is removed all the same
            problems.append(f"A node may still be marked: {describe(error)[0].splitlines()[0]}")
        return problems

    def _kinds(self) -> list[str]:
        sets = [f"{JOB_SETS}/namespaces/{self.namespace}/jobsets"] if self.job_sets else []
        return [*sets, f"/apis/batch/v1/namespaces/{self.namespace}/jobs"]

    def _remove(self, path: str, selector: str, **options: Any) -> list[str]:
        problems = []
        try:
            found = self.api.get(path, labelSelector=selector) or {}
            for item in found.get("items") or []:
                options.setdefault("propagationPolicy", "Background")
                self.api.delete(f"{path}/{item['metadata']['name']}", **options)
        except Exception as error:  # told, so that the rest is removed all the same
            problems.append(f"Left in {path}: {describe(error)[0].splitlines()[0]}")
        return problems

    def _until_gone(self, selector: str, but: str = f",!{ONLOOKER}") -> list[str]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        deadline = time.monotonic() + GONE_SECONDS
        while True:
            try:
                found = (self.api.get(path, labelSelector=f"{selector}{but}") or {}).get("items") or []
            except Exception as error:  # told, so that the rest is removed all the same
                return [f"Whether Pods are left is not known: {describe(error)[0].splitlines()[0]}"]
            if not found:
                return []
            if time.monotonic() > deadline:
                names = ", ".join(pod["metadata"]["name"] for pod in found)
                return [f"After {GONE_SECONDS:.0f} s these Pods were still there: {names}."]
            self.pause(0.5)


def is_run_of(run_id: str, acceptance: str) -> bool:
    """Whether a run's id is one that this acceptance gave: accept-<fault>-<acceptance><j|s>."""
    return run_id.startswith("accept-") and run_id[:-1].endswith(f"-{acceptance}")


def others(pods: Iterable[Mapping[str, Any]], jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Ids of acceptances that have anything in the namespace."""
    found = {str((item["metadata"].get("labels") or {}).get(ACCEPTANCE_LABEL, "")) for item in [*pods, *jobs]}
    return sorted(found - {""})
