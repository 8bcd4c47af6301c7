"""Checks that need the planners: owners, what the site adds to the chart, and whether runs fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from components.planning import eks_checks, extra_values, gke_checks
from components.planning.merge import at, leaves
from components.planning.node_pool_plans import gpus_per_node
from components.planning.ownership import (
    LAYER_TITLES,
    LAYERS,
    OPERATOR,
    Profile,
    override_problems,
    owner_title,
    profile_name,
    profile_of,
    profiles,
)
from components.planning.quota import GPU, Shortage, quota_fit, run_demand
from components.settings.consistency import Told, told
from components.settings.draft import Draft
from components.settings.explain import closest
from components.settings.node_pool import EksNodePoolSettings, GkeNodePoolSettings, NodePoolSettings
from components.settings.problems import full_key
from components.settings.quantity import parse
from components.settings.run import RunSettings
from components.settings.substitution import Path
from components.settings.team import TeamSettings


def problems(draft: Draft) -> list[Told]:
    """Every problem that a planner sees in what is valid so far."""
    found = [refused for index, pool in draft.node_pools.items() if (refused := _refused(pool, index))]
    found += [*eks_checks.problems(draft), *gke_checks.problems(draft)]
    for index, pool in draft.node_pools.items():
        found += override_problems(("nodePools", index), pool)
    usable = {index: pool for index, pool in draft.node_pools.items() if _has_owners(pool)}
    found += _clusters(draft.node_pools)
    mixed = list(_mixed_owners(usable))
    found += mixed
    served = [pool for pool in usable.values() if profile_of(pool).install_operator]
    if served and not mixed and draft.gpu_operator:
        found += extra_values.problems(draft.gpu_operator, profile_of(served[0]), served)
    for index, team in draft.teams.items():
        found += _team(index, team)
    for index, run in draft.runs.items():
        found += _fit(index, run, draft)
    return found


def _refused(pool: NodePoolSettings, index: int = 0) -> Told | None:
    path: Path = ("nodePools", index, "profile")
    name = profile_name(pool)
    if isinstance(pool, EksNodePoolSettings | GkeNodePoolSettings):
        if name is None:
            # The checks of the pool's own cloud say which of its settings do not go together.
            return None
        if profiles()[name].reject:
            path = ("nodePools", index, pool.kind, "accelerator", "driver")
        elif pool.profile not in (None, name):
            fix = f"write {name}, or remove it: it follows from {pool.kind}"
            return told(path, pool.profile, f"nodes as {pool.kind} describes them are of the row {name}", fix)
    profile = profiles().get(name or "")
    if profile is None:
        meant = closest(str(name), profiles())
        supported = ", ".join(name for name, row in profiles().items() if row.status != "reject")
        fix = f"did you mean {meant}? The profiles are {supported}" if meant else f"write one of {supported}"
        return told(path, name, "there is no such profile in policies/ownership.json", fix)
    if profile.reject:
        # The table's message is whole: it says why and what to write instead.
        reason, _, way_out = profile.reject.partition(" Either ")
        shown = pool.gke.accelerator.driver if isinstance(pool, GkeNodePoolSettings) else pool.profile
        return told(path, shown, reason, f"either {way_out}" if way_out else "choose another profile")
    return None


def _has_owners(pool: NodePoolSettings) -> bool:
    name = profile_name(pool)
    return name in profiles() and not profiles()[name].reject


def _mixed_owners(pools: dict[int, NodePoolSettings]) -> Iterator[Told]:
    """One ClusterPolicy has one driver, toolkit, plugin and RuntimeClass for all nodes."""
    for (_, first), (index, second) in combinations(pools.items(), 2):
        one, other = profile_of(first), profile_of(second)
        difference = _difference(one, other)
        if difference:
            # A pool that the stack creates has its profile from what it is, and not from a setting.
            derived = isinstance(second, EksNodePoolSettings | GkeNodePoolSettings)
            yield told(
                ("nodePools", index, second.kind if derived else "profile"),
                None if derived else other.name,
                f'pool "{second.name}"{f" (profile {other.name})" if derived else ""} and pool "{first.name}"'
                f" (profile {one.name}) can not share the cluster's one GPU Operator, whose settings hold for all"
                f" nodes: {difference}",
                "let both pools have nodes of one profile, or put them in different clusters",
            )


def _clusters(pools: dict[int, NodePoolSettings]) -> Iterator[Told]:
    """A stack is one cluster: every pool that it creates is in the first one's."""
    first: tuple[str, tuple[str | None, ...]] | None = None
    for index, pool in pools.items():
        if isinstance(pool, EksNodePoolSettings):
            where: tuple[str | None, ...] = ("EKS", pool.eks.cluster)
        elif isinstance(pool, GkeNodePoolSettings):
            where = ("GKE", pool.gke.cluster, pool.gke.location, pool.gke.project)
        else:
            continue
        first = first or (pool.name, where)
        if where != first[1]:
            here, there = (" ".join(part for part in at if part) for at in (where, first[1]))
            yield told(
                ("nodePools", index, pool.kind, "cluster"),
                where[1],
                f'a stack is one cluster: this pool is in {here}, and pool "{first[0]}" is in {there}',
                "write the cluster of holdfast:cluster in both, or a stack for each cluster",
            )


def _difference(one: Profile, other: Profile) -> str:
    told_layers = [
        f"{LAYER_TITLES[layer]}: {owner_title(other.owners[layer])} and {owner_title(one.owners[layer])}"
        for layer in LAYERS
        if (one.owners[layer] == OPERATOR) != (other.owners[layer] == OPERATOR)
    ]
    if told_layers or one.values == other.values:
        return ", ".join(told_layers)
    paths = {
        path
        for row in (one, other)
        for path, _ in leaves(row.values)
        if at(one.values, path) != at(other.values, path)
    }
    return f"their profiles need different {' and '.join(sorted('.'.join(path) for path in paths))}"


def _team(index: int, team: TeamSettings) -> Iterator[Told]:
    limits = team.limit_range
    path: Path = ("teams", index, "limitRange")
    for resource in ("cpu", "memory"):
        request, limit = getattr(limits.default_request, resource), getattr(limits.default_limit, resource)
        if parse(request) > parse(limit):
            yield told(
                (*path, "defaultRequest", resource),
                request,
                f"the default request is more than the default limit, {limit}",
                f"write {limit} or less, or raise limitRange.defaultLimit.{resource}",
            )
        most = getattr(limits.max, resource) if limits.max else limit
        if parse(limit) > parse(most):
            yield told(
                (*path, "defaultLimit", resource),
                limit,
                f"the default limit is more than the most that is allowed, {most}",
                f"write {most} or less, or raise limitRange.max.{resource}",
            )
    storage = team.checkpoint_storage
    for key, needed in (("requests.storage", storage.size), ("persistentvolumeclaims", "1")):
        if key in team.quota and parse(needed) > parse(team.quota[key]):
            yield told(
                ("teams", index, "quota", key),
                team.quota[key],
                f"the team's checkpoint claim alone needs {needed}",
                f"write {needed} or more",
            )


def _fit(index: int, run: RunSettings, draft: Draft) -> Iterator[Told]:
    pool = draft.pool(run.pool)
    gpus = gpus_per_node(pool) if pool else None
    if pool and gpus is not None and run.gpus > gpus:
        yield told(
            ("runs", index, "requests" if run.requests.gpus is not None else "limits", "gpus"),
            run.gpus,
            f'a run is one Pod on one node, and a node of pool "{pool.name}" has {gpus}, so the Pod would wait'
            " for ever",
            f"write {gpus} or less, or name a pool with larger nodes",
        )
    team = draft.team(run.team)
    if team is None or run.cancelled:
        return
    team_index = next(number for number, item in draft.teams.items() if item is team)
    for short in quota_fit(run_demand(run), team.hard_quota):
        yield _too_large(("runs", index), run, team, full_key("teams", team_index, "quota", short.key), short)
    most = team.limit_range.max
    for resource in ("cpu", "memory") if most else ():
        limit, allowed = getattr(run.limits, resource), getattr(most, resource)
        if parse(limit) > parse(allowed):
            yield told(
                ("runs", index, "limits", resource),
                limit,
                f'team "{team.name}" allows a container {resource} {allowed} at most, so the run\'s Pod would'
                " never be created",
                f"write {allowed} or less, or raise"
                f" {full_key('teams', team_index, 'limitRange', 'max', resource)}",
            )


def _too_large(path: Path, run: RunSettings, team: TeamSettings, quota_key: str, short: Shortage) -> Told:
    field, value = _field(run, short.key)
    return told(
        (*path, *field),
        value,
        f'the run needs {short.needed} of {short.key}, and the quota of team "{team.name}" has'
        f" {short.allowed}: {short.missing} too much, so its Pod would never be created",
        (f"write {short.allowed} or less, or raise " if field and parse(short.allowed) else "raise ")
        + f"{quota_key} to {short.needed} or more",
    )


def _field(run: RunSettings, key: str) -> tuple[Sequence[str], object]:
    if key == f"requests.{GPU}":
        return ("limits" if run.requests.gpus is None and run.limits.gpus else "requests", "gpus"), run.gpus
    group, _, resource = key.rpartition(".")
    if resource in ("cpu", "memory"):
        group = group or "requests"
        return (group, resource), getattr(getattr(run, group), resource)
    return (), None
