"""The dynamic resource that removes a Job or JobSet before its own deletion, and waits for its Pods' end.

The training Job carries `pulumi.com/skipAwait`, and the provider then returns from its deletion at once
(pulumi-kubernetes, pkg/metadata/overrides.go, `allowsSkipAwaitWithDelete`; #1232, #3154) while the Job is
still there, held by its terminating Pod. Three things would break: a replacement of the same name is applied
onto the dying object and disappears with it; two attempts write at once; a claim or namespace waits for a Pod
that nobody speaks of. So this resource depends on the Job, hence goes first, and its deletion is the waiting
one. The Job's own deletion then finds nothing to do. Of a JobSet's deletion the provider does wait, but
without a word about which Pod holds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import dynamic

from components.cluster_resources.access import Cluster, Json, connect, items
from components.cluster_resources.errors import ChangedMeanwhile, ClusterProblem, in_plain_words
from components.cluster_resources.waiting import say

POLL_SECONDS = 1.0
SPEAK_SECONDS = 15.0
SLACK_SECONDS = 60
"""What the kubelet and the garbage collector may take beyond the Pod's grace period."""


@dataclass(frozen=True)
class Kind:
    """How one kind of object is removed, and what it leaves to be waited for."""

    name: str
    path: str
    """Of one object, with places for `namespace` and `name`."""
    pods: str
    """Label selector of its Pods, with a place for `uid`."""
    jobs: str = ""
    """Label selector of its child Jobs; empty if it has none."""


KINDS = {
    "Job": Kind(
        "Job",
        "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
        "batch.kubernetes.io/controller-uid={uid}",
    ),
    # JobSet puts its uid on child Jobs and Pods (kubernetes-sigs/jobset, jobset_controller.go,
    # labelAndAnnotateObject), so the Pods of a child Job that is gone already are found too.
    "JobSet": Kind(
        "JobSet",
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}",
        "jobset.sigs.k8s.io/jobset-uid={uid}",
        "jobset.sigs.k8s.io/jobset-uid={uid}",
    ),
}


def remove_job(
    cluster: Cluster,
    namespace: str,
    job: str,
    uid: str,
    grace_seconds: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    kind: Kind = KINDS["Job"],
) -> None:
    """Delete the Job or JobSet with this uid, no other of its name, and wait for the end of its Pods.

    Raises `ClusterProblem` if a Pod does not end in its grace period. An object or namespace that is gone is
    no error.
    """
    path, what = kind.path.format(namespace=namespace, name=job), f"{kind.name} {namespace}/{job}"
    live = cluster.get(path)
    if live and live["metadata"]["uid"] == uid and not live["metadata"].get("deletionTimestamp"):
        try:
            cluster.delete(
                path,
                {
                    "kind": "DeleteOptions",
                    "apiVersion": "v1",
                    "propagationPolicy": "Foreground",
                    "preconditions": {"uid": uid},
                },
            )
        except ChangedMeanwhile:
            say(f"{what} was replaced by somebody else while it was being removed.")
    started = spoke = clock()
    while True:
        left = _left(cluster, namespace, path, uid, kind)
        now = clock()
        if not left:
            return
        if now - started > grace_seconds + SLACK_SECONDS:
            raise ClusterProblem(
                f"{what} is not gone {now - started:.0f} s after its deletion: "
                f"{', '.join(left)} still there. If the node is dead, bring it back, or fence it and tell "
                "Kubernetes (`kubectl taint node NODE "
                "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`). Do not force-delete the Pod: "
                "its process may go on writing checkpoints. Then run the same command again."
            )
        if now - spoke >= SPEAK_SECONDS:
            say(f"{what}, {now - started:.0f} s: waiting for the end of {', '.join(left)}.")
            spoke = now
        sleep(POLL_SECONDS)


def _left(cluster: Cluster, namespace: str, path: str, uid: str, kind: Kind) -> list[str]:
    pods = items(
        cluster, f"/api/v1/namespaces/{namespace}/pods", labelSelector=kind.pods.format(uid=uid)
    )
    children: list[Json] = []
    if kind.jobs:
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        children = items(cluster, jobs, labelSelector=kind.jobs.format(uid=uid))
    live = cluster.get(path)
    return [
        *(_pod_text(pod) for pod in pods),
        *(f"Job {child['metadata']['name']}" for child in children),
        *([f"the {kind.name}"] if live and live["metadata"]["uid"] == uid else []),
    ]


def _pod_text(pod: Json) -> str:
    return f"Pod {pod['metadata']['name']} on node {(pod.get('spec') or {}).get('nodeName', 'none')}"


class JobRemovalProvider(dynamic.ResourceProvider):
    """Does nothing until it is deleted."""

    serialize_as_secret_always = False

    @in_plain_words
    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        # The uid is unknown when the Job is to be replaced: this resource is then removed first, and the Job
        # with it.
        replaces = [key for key in ("uid", "namespace", "job", "kind") if olds.get(key) != news.get(key)]
        moved = any(olds.get(key) != news.get(key) for key in ("kubeconfig", "context", "graceSeconds"))
        return dynamic.DiffResult(
            changes=bool(replaces) or moved, replaces=replaces, delete_before_replace=True
        )

    @in_plain_words
    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        return dynamic.CreateResult(props["uid"], dict(props))

    @in_plain_words
    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(dict(news))

    @in_plain_words
    def delete(self, _id: str, props: dict[str, Any]) -> None:
        cluster = connect(props["kubeconfig"], props["context"])
        remove_job(
            cluster,
            props["namespace"],
            props["job"],
            props["uid"],
            float(props["graceSeconds"]),
            say,
            kind=KINDS[props["kind"]],
        )


class JobRemoval(dynamic.Resource, module="holdfast", name="JobRemoval"):
    """The waiting half of a Job's or JobSet's deletion."""

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: pulumi.Input[str],
        context: pulumi.Input[str],
        namespace: pulumi.Input[str],
        job: pulumi.Input[str],
        uid: pulumi.Input[str],
        grace_seconds: int,
        kind: str = "Job",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`job` and `uid` are the object's outputs, so that this resource follows it; `grace_seconds` is its
        Pod's; `kind` is a key of `KINDS`.
        """
        props: dict[str, Any] = {
            "kubeconfig": kubeconfig,
            "context": context,
            "namespace": namespace,
            "job": job,
            "uid": uid,
            "graceSeconds": grace_seconds,
            "kind": kind,
        }
        super().__init__(JobRemovalProvider(), name, props, opts)
