"""The dynamic resource that keeps one label set and one taint on every node of a pool that exists already, or
only verifies that they are there.

How a node that joins later is found by a plain `up`, with no refresh: the engine calls `check` at every
preview and update, and `check` looks at the cluster. The nodes that it finds become the input `nodes`, and
what is to be done on them the input `changes`; a difference there is the diff. With nothing to do both are as
before and the preview is empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pulumi
from pulumi import dynamic

from components.cluster_resources.access import Cluster, Json, connect, items
from components.cluster_resources.errors import ChangedMeanwhile, ClusterProblem, NodeConflict, in_plain_words
from components.cluster_resources.membership import (
    Change,
    Membership,
    held_by,
    join,
    leave,
    missing,
    name_of,
    selects,
)

NODES = "/api/v1/nodes"
ATTEMPTS = 12
"""Tries per node against other writers; a kubelet's heartbeat alone changes a node every ten seconds."""

IDENTITY = ("cluster", "owner")
DECLARED = ("kubeconfig", "context", "pool", "selector", "labels", "taint", "verify", "nodes")


def plan(nodes: list[Json], props: Mapping[str, Any]) -> tuple[list[str], list[Change]]:
    """The names of the pool's nodes, and the writes that make all and only them its members."""
    membership = _membership(props)
    members = [node for node in nodes if selects(props["selector"], node)]
    names = sorted(name_of(node) for node in members)
    leaving = [node for node in held_by(membership.owner, nodes) if name_of(node) not in names]
    changes = [join(node, membership) for node in members] + [
        leave(node, membership.owner) for node in leaving
    ]
    return names, [change for change in changes if change is not None]


class NodePoolMembershipProvider(dynamic.ResourceProvider):
    """Read-modify-write under the node's resourceVersion. Has no state of its own, so that it pickles by
    reference.
    """

    serialize_as_secret_always = False

    @in_plain_words
    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        if pulumi.contains_unknowns(news):
            # The cluster is not there yet: which nodes it will have is not known either.
            return dynamic.CheckResult(news, [])
        try:
            nodes = items(connect(news["kubeconfig"], news["context"]), NODES)
            _refuse_missing(nodes, news)
            _refuse_incomplete(nodes, news)
            names, changes = plan(nodes, news)
        except ClusterProblem as problem:
            return dynamic.CheckResult(news, [dynamic.CheckFailure("", str(problem))])
        words = [f"{change.node}: {', '.join(change.what)}" for change in changes]
        return dynamic.CheckResult({**news, "nodes": names, "changes": words}, [])

    @in_plain_words
    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        replaces = [key for key in IDENTITY if olds.get(key) != news.get(key)]
        changed = bool(replaces or news.get("changes")) or any(
            olds.get(key) != news.get(key) for key in DECLARED
        )
        return dynamic.DiffResult(changes=changed, replaces=replaces, delete_before_replace=True)

    @in_plain_words
    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        return dynamic.CreateResult(props["owner"], _apply(props))

    @in_plain_words
    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(_apply(news))

    @in_plain_words
    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """`nodes` becomes the nodes that have all of it; one that lost something is missing there."""
        nodes = items(connect(props["kubeconfig"], props["context"]), NODES)
        complete = [
            name_of(node) for node in nodes if selects(props["selector"], node) and _is_member(node, props)
        ]
        return dynamic.ReadResult(id_, {**_declared(props), "nodes": sorted(complete)})

    @in_plain_words
    def delete(self, _id: str, props: dict[str, Any]) -> None:
        cluster = connect(props["kubeconfig"], props["context"])
        owner = props["owner"]
        for node in held_by(owner, items(cluster, NODES)):
            _write(cluster, name_of(node), lambda live: leave(live, owner))


class NodePoolMembership(dynamic.Resource, module="holdfast", name="NodePoolMembership"):
    """Labels and taint of one pool whose nodes exist already."""

    nodes: pulumi.Output[list[str]]
    """The names of the pool's nodes, sorted."""

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: pulumi.Input[str],
        context: pulumi.Input[str],
        cluster: str,
        owner: str,
        pool: str,
        selector: Mapping[str, Any],
        labels: Mapping[str, str],
        taint: Mapping[str, str],
        verify: Collection[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`selector`: `{"matchLabels": {…}}` or `{"names": […]}`; `taint`: key, value, effect; `cluster`:
        its identity; `verify`: of `labels` and `taint`, what the nodes must have already.
        """
        props: dict[str, Any] = {
            "kubeconfig": kubeconfig,
            "context": context,
            "cluster": cluster,
            "owner": owner,
            "pool": pool,
            "selector": dict(selector),
            "labels": dict(labels),
            "taint": dict(taint),
            "nodes": None,
            **({"verify": sorted(verify)} if verify else {}),
        }
        super().__init__(NodePoolMembershipProvider(), name, props, opts)


def _apply(props: Mapping[str, Any]) -> dict[str, Any]:
    cluster = connect(props["kubeconfig"], props["context"])
    membership = _membership(props)
    nodes = items(cluster, NODES)
    names, changes = plan(nodes, props)
    for change in changes:
        decide: Callable[[Json], Change | None]
        if change.node in names:
            decide = lambda live: join(live, membership)  # noqa: E731
        else:
            decide = lambda live: leave(live, membership.owner)  # noqa: E731
        _write(cluster, change.node, decide)
    return {**_declared(props), "nodes": names}


def _write(cluster: Cluster, node: str, decide: Callable[[Json], Change | None]) -> None:
    """Read the node, decide, write under its resourceVersion; again if somebody else wrote first. A gone
    node is done.
    """
    for _ in _tries():
        live = cluster.get(f"{NODES}/{node}")
        change = decide(live) if live else None
        if change is None:
            return
        try:
            cluster.patch(f"{NODES}/{node}", change.patch)
            return
        except ChangedMeanwhile:
            continue
    raise ClusterProblem(
        f"Node {node} was changed by somebody else at each of {ATTEMPTS} tries to write its labels and "
        f"taint. Look who writes to it (`kubectl get node {node} -o yaml --show-managed-fields`) and run "
        "`pulumi up` again."
    )


def _tries() -> Iterator[int]:
    for attempt in range(ATTEMPTS):
        time.sleep(min(0.05 * attempt, 0.5))
        yield attempt


def _refuse_missing(nodes: list[Json], props: Mapping[str, Any]) -> None:
    present, selector, pool = {name_of(node) for node in nodes}, props["selector"], props["pool"]
    missing = sorted(set(selector.get("names") or ()) - present)
    if missing:
        raise ClusterProblem(
            f"Pool {pool} names nodes that the cluster does not have: {', '.join(missing)}. It has: "
            f"{', '.join(sorted(present)) or 'none'}. Correct selectNodes.names of the pool in "
            "holdfast:nodePools."
        )
    if not any(selects(selector, node) for node in nodes):
        wanted = ",".join(f"{key}={value}" for key, value in sorted(selector["matchLabels"].items()))
        raise ClusterProblem(
            f"Pool {pool} has no node: none of "
            f"{', '.join(sorted(present)) or 'the cluster (it has no nodes)'} has the labels {wanted}. "
            f"Label the GPU nodes (`kubectl label node NAME {wanted.replace(',', ' ')}`), or correct "
            "selectNodes.matchLabels of the pool in holdfast:nodePools."
        )


def _refuse_incomplete(nodes: list[Json], props: Mapping[str, Any]) -> None:
    """Every node that lacks what is only verified, all at once, with the commands that help."""
    membership = _membership(props)
    lacks = {
        name_of(node): list(missing(node, membership)) for node in nodes if selects(props["selector"], node)
    }
    if any(lacks.values()):
        words = "; ".join(
            f"{node} has {' and '.join(word for word, _ in found)}" for node, found in lacks.items() if found
        )
        commands = " && ".join(command for found in lacks.values() for _, command in found)
        raise ClusterProblem(
            f"Pool {props['pool']} is only verified ({' and '.join(props['verify'])}), and its nodes are not "
            f"what it says: {words}. Set it where the nodes come from, so that new ones have it too; for those "
            f"that are there: `{commands}`. Or let the stack do it: change: {{labels: true, taint: true}} of the pool in "
            "holdfast:nodePools."
        )


def _is_member(node: Json, props: Mapping[str, Any]) -> bool:
    membership = _membership(props)
    if any(missing(node, membership)):
        return False
    try:
        return join(node, membership) is None
    except NodeConflict:
        return False


def _membership(props: Mapping[str, Any]) -> Membership:
    return Membership(
        props["owner"],
        props["pool"],
        dict(props["labels"]),
        dict(props["taint"]),
        tuple(props.get("verify") or ()),
    )


def _declared(props: Mapping[str, Any]) -> dict[str, Any]:
    return {key: props[key] for key in (*IDENTITY, *DECLARED) if key in props}
