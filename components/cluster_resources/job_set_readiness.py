"""The dynamic resource that is created when the cluster really takes JobSets, and not before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi import dynamic

from components.cluster_resources.access import connect
from components.cluster_resources.errors import in_plain_words
from components.cluster_resources.job_set_judgement import judge, observe
from components.cluster_resources.waiting import Subject, say, wait

SUBJECT = Subject("JobSet controller", "holdfast:jobSet.timeoutMinutes")
READY_SECONDS_CREATE = 4.0
READY_SECONDS_UPDATE = 10.0
"""Ready counts when it stays this long: after an upgrade the old webhook answers until the new one does."""

WAITED_FOR = ("cluster", "namespace", "installed", "triggers")
"""Inputs whose change means waiting again. The way to the cluster and the patience are no reason."""


class JobSetReadinessProvider(dynamic.ResourceProvider):
    """Waits at create and update, owns nothing, and has nothing to delete."""

    serialize_as_secret_always = False

    @in_plain_words
    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        return dynamic.DiffResult(
            changes=any(olds.get(key) != news.get(key) for key in WAITED_FOR), replaces=[]
        )

    @in_plain_words
    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        _wait(props, READY_SECONDS_CREATE)
        return dynamic.CreateResult(f"{props['cluster']}/{props['namespace']}", {**props, "ready": True})

    @in_plain_words
    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        _wait(news, READY_SECONDS_UPDATE)
        return dynamic.UpdateResult({**news, "ready": True})


class JobSetReadiness(dynamic.Resource, module="holdfast", name="JobSetReadiness"):
    """Exists once the API server takes a JobSet and the controller's webhook has seen it."""

    ready: pulumi.Output[bool]
    """True; unknown at a preview that would wait."""

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: pulumi.Input[str],
        context: pulumi.Input[str],
        cluster: str,
        namespace: str,
        installed: bool,
        triggers: Mapping[str, pulumi.Input[Any]],
        timeout_seconds: int,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`installed`: by this stack, in `namespace`; `triggers`: anything whose change means waiting
        again.
        """
        props: dict[str, Any] = {
            "kubeconfig": kubeconfig,
            "context": context,
            "cluster": cluster,
            "namespace": namespace,
            "installed": installed,
            "triggers": dict(triggers),
            "timeoutSeconds": timeout_seconds,
            "ready": None,
        }
        super().__init__(JobSetReadinessProvider(), name, props, opts)


def _wait(props: Mapping[str, Any], stay_seconds: float) -> None:
    cluster = connect(props["kubeconfig"], props["context"])
    namespace, installed = props["namespace"], bool(props["installed"])
    wait(
        lambda: judge(observe(cluster, namespace, installed), namespace, installed),
        SUBJECT,
        float(props["timeoutSeconds"]),
        stay_seconds,
        say,
    )
