"""What a workload asks for fits the quotas of its namespace: over quota it has no Pod, and only events say"
" so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pulumi_policy import Severity

from rules.engine import Config, Resource, Violation, stack_policy
from rules.jobs import jobs
from rules.pods import Workload, may_have_pods, workloads
from rules.quantity import is_number, parse, show
from rules.quota_keys import QUOTA
from rules.views import View

_LIMIT_RANGE = "kubernetes:core/v1:LimitRange"
_KUEUE = "kubernetes:kueue.x-k8s.io/"
_COMPUTE = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
# A bare name is the request of it. Source: Kubernetes documentation, "Resource Quotas".
_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory"}
_REPLICATED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})

Amounts = dict[str, Decimal]


@dataclass
class _Asked:
    """What one object asks for: `one` is its largest Pod by quota key, `amounts` all Pods that it wants at
    the same time, `missing` the compute keys that a container does not state.
    """

    title: str
    urn: str
    one: Amounts = field(default_factory=lambda: defaultdict(Decimal))
    amounts: Amounts = field(default_factory=lambda: defaultdict(Decimal))
    missing: set[str] = field(default_factory=set)
    hidden: list[View] = field(default_factory=list)


def check_quota_fit(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Every workload in a namespace for which the stack has a quota without scopes."""
    quotas: dict[tuple[str, str], list[Resource]] = defaultdict(list)
    ranged = set()
    for r in resources:
        if r.type in (QUOTA, _LIMIT_RANGE):
            namespace = r.props["metadata"]["namespace"]
            where = (r.cluster, namespace.text() or "default")
            if namespace.unknown or r.props["spec"].unknown:
                r.props["spec"].value()
                continue
            if r.type == _LIMIT_RANGE:
                ranged.add(where)
            elif not r.props["spec"]["scopes"].exists and not r.props["spec"]["scopeSelector"].exists:
                quotas[where].append(r)
    if not quotas:
        return
    yield from _check_queues(resources, quotas)
    for r in resources:
        if r.type in (QUOTA, _LIMIT_RANGE):
            continue
        namespace = r.props["metadata"]["namespace"]
        where = (r.cluster, namespace.peek_text() or "default")
        if namespace.unknown and may_have_pods(r.type):
            namespace.note()
        if namespace.unknown or where not in quotas:
            continue
        asked = _asked(r)
        if asked is not None:
            for quota in quotas[where]:
                yield from _compare(asked, quota, where in ranged)


def _check_queues(
    resources: Sequence[Resource], quotas: Mapping[tuple[str, str], Sequence[Resource]]
) -> Iterator[Violation]:
    """Kueue admits by its own quota and does not look at a ResourceQuota (kueue#696): that must not be
    smaller.
    """
    queues = {
        (r.cluster, r.props["metadata"]["name"].text()): r
        for r in resources
        if r.type.startswith(_KUEUE) and r.kind == "ClusterQueue"
    }
    for r in resources:
        if not r.type.startswith(_KUEUE) or r.kind != "LocalQueue":
            continue
        queue = queues.get((r.cluster, r.props["spec"]["clusterQueue"].text()))
        namespace = r.props["metadata"]["namespace"].text() or "default"
        if queue is None:
            continue
        nominal = _nominal(queue)
        for quota in quotas.get((r.cluster, namespace), ()):
            hard = quota.props["spec"]["hard"]
            for name, amount in nominal.items():
                limit = parse(hard[f"requests.{name}"].value())
                if limit is not None and amount > limit:
                    yield Violation(
                        f"{queue.title} admits {name}: {_plain(amount)} in namespace '{namespace}'"
                        f" ({r.title}), but {quota.title} allows {_plain(limit)} there: admitted runs get"
                        " no Pods. Raise the quota to at least what the queue can admit, or leave the"
                        " resource out of it.",
                        quota.urn,
                    )


def _nominal(queue: Resource) -> Amounts:
    """What a ClusterQueue admits by its own, of resources that are no cpu and memory."""
    found: Amounts = defaultdict(Decimal)
    for group in queue.props["spec"]["resourceGroups"].elements():
        for flavor in group["flavors"].elements():
            for each in flavor["resources"].elements():
                name, amount = each["name"].text(), parse(each["nominalQuota"].value())
                if name and "/" in name and amount is not None:
                    found[name] += amount
    return found


def _compare(asked: _Asked, quota: Resource, has_defaults: bool) -> Iterator[Violation]:
    hard = quota.props["spec"]["hard"]
    for amounts, what in (
        (asked.one, "can never run: one Pod of it asks for more"),
        (asked.amounts, "can never have all its Pods: together they ask for more"),
    ):
        over = []
        for key in hard.keys():
            limit, amount = parse(hard[key].value()), amounts.get(_ALIASES.get(key, key))
            if limit is not None and amount is not None and amount > limit:
                over.append(f"{key}: {_plain(amount)} of {show(hard[key].peek())}")
        if over:
            yield Violation(
                f"{asked.title} {what} than {quota.title} allows in its namespace ({'; '.join(over)}). Ask"
                " for less, or raise the quota.",
                asked.urn,
            )
            return
    needed = {_ALIASES.get(key, key) for key in hard.peek_keys()} & asked.missing
    if needed and not has_defaults:
        yield Violation(
            f"{asked.title} has no Pod: {quota.title} counts {', '.join(sorted(needed))}, so that every"
            " container of the namespace must state it, and one of this workload does not. Set it in the"
            " container's resources, or add a LimitRange with defaults to the namespace.",
            asked.urn,
        )
    # Hidden amounts matter only where the quota counts at all.
    for view in asked.hidden:
        view.note()


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _asked(r: Resource) -> _Asked | None:
    found = _Asked(r.title, r.urn)
    at_once: list[tuple[Workload, int]] = []
    own_jobs = jobs(r)
    if own_jobs:
        for index, job in enumerate(own_jobs):
            times = 1
            if job.job_set is not None:
                replicated = r.props["spec"]["replicatedJobs"][index]
                times = _count(replicated["replicas"], found)
            parallel, completions = job.spec["parallelism"], job.spec["completions"]
            pods = _count(parallel, found)
            if completions.exists and not completions.unknown:
                total = _count(completions, found)
                # Pods that work off a list need not be there at the same time.
                indexed = job.spec["completionMode"].peek_text() == "Indexed"
                pods = min(pods, total) if indexed or total <= pods else 1
            at_once.append((job.workload, times * pods))
    else:
        for workload in workloads(r):
            if workload.kind == "DaemonSet" or not workload.complete:
                continue
            pods = _count(r.props["spec"]["replicas"], found) if workload.kind in _REPLICATED else 1
            at_once.append((workload, pods))
    if not at_once:
        return None
    for workload, pods in at_once:
        of_pod = _of_pod(workload, found)
        for key, amount in of_pod.items():
            found.one[key] = max(found.one[key], amount)
            found.amounts[key] += amount * pods
        found.amounts["pods"] += pods
    return found


def _count(view: View, asked: _Asked) -> int:
    if view.unknown:
        asked.hidden.append(view)
        return 0  # it may be none: what is certain is what the others ask for
    value = view.peek()
    return int(value) if is_number(value) else 1


def _of_pod(workload: Workload, asked: _Asked) -> Amounts:
    """A Pod's amounts as the quota counts them: all containers, or one init container if that asks for
    more.
    """
    missed_before = frozenset(asked.missing)
    together: Amounts = defaultdict(Decimal)
    largest: Amounts = defaultdict(Decimal)
    for group in ("containers", "initContainers"):
        if workload.spec[group].unknown:
            asked.hidden.append(workload.spec[group])
        for container in workload.spec[group].peek_elements():
            amounts = _of_container(container, asked)
            runs_on = group == "containers" or container["restartPolicy"].peek_text() == "Always"
            for key, amount in amounts.items():
                if runs_on:
                    together[key] += amount
                else:
                    largest[key] = max(largest[key], amount)
    found = {key: max(together[key], largest[key]) for key in {*together, *largest}}
    of_all = workload.spec["resources"]
    if of_all.exists:
        # Resources of the whole Pod win, and free its containers from stating theirs. Source: Kubernetes
        # documentation, "Assign Pod-level CPU and memory resources".
        whole = _Asked(asked.title, asked.urn)
        amounts = _of_container(workload.spec, whole)
        found.update(amounts)
        asked.hidden.extend(whole.hidden)
        if amounts or whole.hidden:
            asked.missing.intersection_update(missed_before)
    return found


def _of_container(container: View, asked: _Asked) -> Amounts:
    resources = container["resources"]
    limits, requests = resources["limits"], resources["requests"]
    asked.hidden.extend(v for v in (container, resources, limits, requests) if v.unknown)
    hidden = container.unknown or resources.unknown or limits.unknown or requests.unknown
    found: Amounts = {}
    for name in {*limits.peek_keys(), *requests.peek_keys()}:
        limit, request = limits[name], requests[name]
        asked.hidden.extend(v for v in (limit, request) if v.unknown)
        by_limit = parse(limit.peek())
        # A request that is not set is taken from the limit.
        by_request = parse(request.peek()) if request.exists else by_limit
        if by_request is not None:
            found[f"requests.{name}"] = by_request
        if by_limit is not None:
            found[f"limits.{name}"] = by_limit
    if not hidden:
        stated = {f"limits.{n}" for n in limits.peek_keys()}
        stated |= {f"requests.{n}" for n in (*limits.peek_keys(), *requests.peek_keys())}
        asked.missing.update(key for key in _COMPUTE if key not in stated)
    return found


QUOTA_FIT = stack_policy(
    name="fits-its-quota",
    description="What a workload asks for fits the quotas of its namespace.",
    severity=Severity.HIGH,
    remediation=(
        "Ask for less or raise the quota: parallelism times the requests of a Pod must not be more than"
        " spec.hard, and every container states the cpu and memory that the quota counts."
    ),
    check=check_quota_fit,
    wants=lambda type_: type_ in (QUOTA, _LIMIT_RANGE) or may_have_pods(type_),
)
