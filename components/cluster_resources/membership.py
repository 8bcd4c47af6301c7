"""Which nodes are a pool's, and the exact change that makes one a member or lets it go. Pure: nodes in,
patches out.

A node's taints are one atomic list, so a server-side apply patch of it takes other people's taints away
(pulumi-kubernetes#2750; tried on a real node). Here only one element is added or removed, in a merge patch
that carries the node's resourceVersion: whoever changed the node in between makes the write fail, and it is
decided again.

What we wrote is noted in an annotation *on the node*, in the same patch. So a label or taint that was there
before us stays after us, a half-finished `up` forgets nothing, and two stacks can not claim one node without
seeing each other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.cluster_resources.access import Json
from components.cluster_resources.errors import NodeConflict

NOTE = "holdfast.dev/node-pool"
"""Annotation on a member: {"owner": …, "labels": {ours}, "taints": [ours]} as JSON."""


@dataclass(frozen=True)
class Membership:
    """What every node of one pool has."""

    owner: str
    """`<project>/<stack>/<pool>`: who holds the node."""
    pool: str
    labels: Mapping[str, str]
    taint: Mapping[str, str]
    """`key`, `value` and `effect`."""
    verify: Collection[str] = ()
    """What is never written, only looked at: `labels`, `taint`, or both."""

    @property
    def only_looks(self) -> bool:
        """True: nothing is written to a node, not even the note."""
        return {"labels", "taint"} <= set(self.verify)


@dataclass(frozen=True)
class Change:
    """One write to one node."""

    node: str
    patch: Json
    """JSON merge patch, with the resourceVersion that was read."""
    what: tuple[str, ...]
    """The change in words, one per element."""


@dataclass(frozen=True)
class _Note:
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def of(cls, node: Json) -> _Note:
        text = (node["metadata"].get("annotations") or {}).get(NOTE)
        try:
            data = json.loads(text) if text else {}
            return cls(data.get("owner"), dict(data.get("labels", {})), tuple(data.get("taints", ())))
        except (ValueError, AttributeError, TypeError):
            raise NodeConflict(
                f"Node {name_of(node)} has an annotation {NOTE} that can not be read: {text}. Remove it: "
                f"`kubectl annotate node {name_of(node)} {NOTE}-`."
            ) from None


def name_of(node: Json) -> str:
    return str(node["metadata"]["name"])


def selects(selector: Mapping[str, Any], node: Json) -> bool:
    """True if `selector`, `{"matchLabels": {…}}` or `{"names": […]}`, takes the node."""
    if selector.get("names"):
        return name_of(node) in selector["names"]
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


def held_by(owner: str, nodes: Iterable[Json]) -> list[Json]:
    """The nodes whose note names this owner."""
    return [node for node in nodes if _Note.of(node).owner == owner]


def taint_text(taint: Mapping[str, Any]) -> str:
    """`key=value:effect`, or `key:effect` without a value."""
    value = taint.get("value") or ""
    return f"{taint['key']}={value}:{taint['effect']}" if value else f"{taint['key']}:{taint['effect']}"


def join(node: Json, membership: Membership) -> Change | None:
    """The write that makes the node a member, None if it is one. Raises `NodeConflict` for another's
    value.
    """
    name, note = name_of(node), _Note.of(node)
    if note.owner not in (None, membership.owner):
        if membership.only_looks:
            return None
        raise NodeConflict(
            f"Node {name} belongs to {note.owner} already, so pool {membership.pool} ({membership.owner}) "
            "can not take it. A node has one pool: change selectNodes of one of the two. Was the pool "
            "renamed? Then first `pulumi up` without the pool, which releases its nodes, and again with "
            "its new name."
        )
    what: list[str] = []
    labels, our_labels = _join_labels(node, note, membership, what)
    taints, our_taints = _join_taints(node, note, membership, what)
    new_note = None if membership.only_looks else json.dumps(
        {"owner": membership.owner, "labels": our_labels, "taints": our_taints},
        sort_keys=True,
        separators=(",", ":"),
    )  # fmt: skip
    annotations = (
        {} if (node["metadata"].get("annotations") or {}).get(NOTE) == new_note else {NOTE: new_note}
    )
    if annotations and not what:
        what.append("note the pool" if new_note else "forget the pool, and leave its labels and taint")
    return _change(node, labels, annotations, taints, what)


def missing(node: Json, membership: Membership) -> Iterator[tuple[str, str]]:
    """What a node lacks of what is only verified: in words, and the command that gives it."""
    name = name_of(node)
    live = node["metadata"].get("labels") or {}
    for key, value in membership.labels.items() if "labels" in membership.verify else ():
        if live.get(key) != value:
            other = (
                f"{key}={live[key]} instead of {key}={value}" if key in live else f"no label {key}={value}"
            )
            overwrite = "--overwrite " if key in live else ""
            yield other, f"kubectl label node {overwrite}{name} {key}={value}"
    if "taint" in membership.verify:
        wanted = {**membership.taint, "value": membership.taint.get("value") or ""}
        taints = (node.get("spec") or {}).get("taints") or []
        there = next((taint for taint in taints if _identity(taint) == _identity(wanted)), None)
        if there is None:
            yield f"no taint {taint_text(wanted)}", f"kubectl taint node {name} {taint_text(wanted)}"
        elif not _same(there, wanted):
            told = f"the taint {taint_text(there)} instead of {taint_text(wanted)}"
            yield told, f"kubectl taint node --overwrite {name} {taint_text(wanted)}"


def leave(node: Json, owner: str) -> Change | None:
    """The write that takes away what is ours and still has our value; None if the owner does not hold the
    node.
    """
    note = _Note.of(node)
    if note.owner != owner:
        return None
    live = node["metadata"].get("labels") or {}
    labels = {key: None for key, value in note.labels.items() if live.get(key) == value}
    what = [f"remove label {key}" for key in labels]
    old = list((node.get("spec") or {}).get("taints") or [])
    gone = [taint for taint in old if any(_same(taint, ours) for ours in note.taints)]
    what += [f"remove taint {taint_text(taint)}" for taint in gone]
    taints = [taint for taint in old if taint not in gone] if gone else None
    return _change(node, labels, {NOTE: None}, taints, what or ["forget the pool"])


def _join_labels(
    node: Json, note: _Note, membership: Membership, what: list[str]
) -> tuple[dict[str, str | None], dict[str, str]]:
    live = node["metadata"].get("labels") or {}
    patch: dict[str, str | None] = {}
    ours: dict[str, str] = {}
    verified = "labels" in membership.verify
    for key, value in membership.labels.items():
        if verified:
            continue
        if live.get(key) == value:
            if key in note.labels:
                ours[key] = value
            continue
        if key in live and live[key] != note.labels.get(key):
            raise NodeConflict(
                f"Node {name_of(node)} has the label {key}={live[key]}, which is not ours, and pool "
                f"{membership.pool} wants {key}={value}. Choose another label in the pool's labels, or "
                f"remove that one: `kubectl label node {name_of(node)} {key}-`."
            )
        patch[key] = ours[key] = value
        what.append(f"set label {key}={value}")
    for key, value in note.labels.items():
        if key not in membership.labels and live.get(key) == value:
            patch[key] = None
            what.append(f"remove label {key}")
    return patch, ours


def _join_taints(
    node: Json, note: _Note, membership: Membership, what: list[str]
) -> tuple[list[Json] | None, list[dict[str, str]]]:
    wanted = {
        "key": membership.taint["key"],
        "value": membership.taint.get("value") or "",
        "effect": membership.taint["effect"],
    }
    old = list((node.get("spec") or {}).get("taints") or [])
    # Ours from an earlier configuration: another key, effect or value than wanted now, and untouched since.
    stale = [t for t in old if any(_same(t, ours) for ours in note.taints) and not _same(t, wanted)]
    kept = [t for t in old if t not in stale]
    what += [f"remove taint {taint_text(taint)}" for taint in stale]
    if "taint" in membership.verify:
        return (kept if stale else None), []
    there = next((t for t in kept if _identity(t) == _identity(wanted)), None)
    if there is None:
        what.append(f"set taint {taint_text(wanted)}")
        return [*kept, {k: v for k, v in wanted.items() if v}], [wanted]
    if not _same(there, wanted):
        raise NodeConflict(
            f"Node {name_of(node)} has the taint {taint_text(there)}, which is not ours, and pool "
            f"{membership.pool} wants {taint_text(wanted)}; a node has one taint per key and effect. "
            f"Choose another taint for the pool, or remove that one: `kubectl taint node {name_of(node)} "
            f"{there['key']}:{there['effect']}-`."
        )
    ours = [wanted] if any(_same(there, noted) for noted in note.taints) else []
    return (kept if stale else None), ours


def _identity(taint: Mapping[str, Any]) -> tuple[str, str]:
    return taint["key"], taint["effect"]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return _identity(one) == _identity(other) and (one.get("value") or "") == (other.get("value") or "")


def _change(
    node: Json,
    labels: Mapping[str, str | None],
    annotations: Mapping[str, str | None],
    taints: list[Json] | None,
    what: list[str],
) -> Change | None:
    if not labels and not annotations and taints is None:
        return None
    metadata: Json = {"resourceVersion": node["metadata"]["resourceVersion"]}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    patch: Json = {"metadata": metadata}
    if taints is not None:
        patch["spec"] = {"taints": taints or None}
    return Change(name_of(node), patch, tuple(what))
