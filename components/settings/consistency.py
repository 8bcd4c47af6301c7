"""Checks across settings that need no planner: names are known and different, amounts agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import PurePosixPath

from components.settings.draft import Draft
from components.settings.explain import closest
from components.settings.formats import LONGEST_RUN_ID
from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.job_set import DEFAULT_NAMESPACE, JobSetSettings
from components.settings.node_pool import selected
from components.settings.problems import Problem, full_key, show
from components.settings.quantity import parse
from components.settings.run import CHECKPOINT_ROOT, RESERVED_MOUNTS, RunSettings
from components.settings.substitution import Path

Told = tuple[Path, Problem]
OUR_VOLUMES = ("checkpoints", "shared-memory", "tmp")
_OUR_KEYS = ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of")
_OUR_ANNOTATIONS = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
    "pulumi.com/skipAwait",
)
# A Pod's name has 63 characters (kubernetes-sigs/jobset, pkg/webhooks/jobset_webhook.go, ValidateCreate).
LONGEST_JOBSET_RUN_ID = LONGEST_RUN_ID - len("-trainer-0-0-abcde")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")


def problems(draft: Draft) -> list[Told]:
    """Every problem between settings that are valid one by one."""
    return [*_pools(draft), *_gpu_operator(draft), *_job_set(draft), *_teams(draft), *_runs(draft)]


def told(path: Path, value: object, reason: str, fix: str) -> Told:
    """A problem with its path. `value` None: nothing is shown."""
    return path, Problem(full_key(*path), None if value is None else show(value, *path), reason, fix)


def _repeated(section: str, field: str, names: Iterable[tuple[int, str]]) -> Iterator[Told]:
    first: dict[str, int] = {}
    for index, name in names:
        if name in first:
            yield told(
                (section, index, field),
                name,
                f"{full_key(section, first[name])} has the same {field}",
                "give each its own",
            )
        first.setdefault(name, index)


def _pools(draft: Draft) -> Iterator[Told]:
    yield from _repeated(
        "nodePools", "name", ((index, pool.name) for index, pool in draft.node_pools.items())
    )
    yield from _former_names(draft)
    for index, pool in draft.node_pools.items():
        for number, taint in enumerate(pool.startup_taints):
            # A node has one taint of a key and an effect.
            others = (pool.taint, *pool.startup_taints[:number])
            if any((taint.key, taint.effect) == (other.key, other.effect) for other in others):
                yield told(
                    ("nodePools", index, "startupTaints", number),
                    str(taint),
                    "the pool has a taint of this key and effect already, and a node can have one of them only",
                    "remove it: the pool's own taint stays, a startup taint goes",
                )
        nodes = selected(pool)
        for key, wanted in nodes.match_labels.items() if nodes else ():
            if pool.labels.get(key, wanted) != wanted:
                yield told(
                    ("nodePools", index, "labels", key),
                    pool.labels[key],
                    f"the nodes are selected by {key}={wanted}, and this would change that label, so the pool"
                    " would be empty",
                    "select the nodes by a label that the stack does not set",
                )
    for (_, first), (index, second) in combinations(draft.node_pools.items(), 2):
        if set(first.labels.items()) <= set(second.labels.items()) or set(second.labels.items()) <= set(
            first.labels.items()
        ):
            yield told(
                ("nodePools", index, "labels"),
                dict(second.labels),
                "a Job is sent to a pool by its labels, and these do not tell this pool from pool"
                f' "{first.name}"',
                f"give each pool its own value, such as labels: {{pool: {second.name}}}",
            )
        one, other = selected(first), selected(second)
        shared = sorted(set(one.names) & set(other.names)) if one and other else []
        if shared or (one and other and one.match_labels and one.match_labels == other.match_labels):
            nodes_twice = f"the node {shared[0]}" if shared else "the same nodes"
            yield told(
                ("nodePools", index, "selectNodes"),
                None,
                f'it selects {nodes_twice} that pool "{first.name}" selects too',
                "let every node belong to one pool",
            )


def _former_names(draft: Draft) -> Iterator[Told]:
    """What a pool had before can not be another one's now: both would be the same nodes."""
    taken = {pool.name: full_key("nodePools", index, "name") for index, pool in draft.node_pools.items()}
    for index, pool in draft.node_pools.items():
        for number, name in enumerate(pool.former_names):
            path: Path = ("nodePools", index, "formerNames", number)
            if name in taken:
                yield told(
                    path,
                    name,
                    f"{taken[name]} is the same, and the nodes of one name can belong to one pool only",
                    "remove it, or give the other pool another name",
                )
            taken.setdefault(name, full_key(*path))


def _without_effect(settings: GpuOperatorSettings | JobSetSettings) -> list[str]:
    """What is given of an installation that is not made."""
    is_given = {"chart": settings.chart != type(settings.chart)(), "extraValues": bool(settings.extra_values)}
    return [key for key, given in is_given.items() if given]


def _gpu_operator(draft: Draft) -> Iterator[Told]:
    settings = draft.gpu_operator
    if settings and settings.install == "existing" and (given := _without_effect(settings)):
        yield told(
            ("gpuOperator", "install"),
            settings.install,
            f"the stack leaves that operator alone, so {' and '.join(given)} would have no effect",
            f"remove {' and '.join(given)} and set it where the operator was installed, or write always",
        )


def _job_set(draft: Draft) -> Iterator[Told]:
    settings = draft.job_set
    if settings is None:
        return
    given = _without_effect(settings)
    if settings.install in ("existing", "never") and given:
        yield told(
            ("jobSet", "install"),
            settings.install,
            f"the stack does not install the controller, so {' and '.join(given)} would have no effect",
            f"remove {' and '.join(given)}, or write auto or always",
        )
    operator = draft.gpu_operator
    if operator and settings.namespace == operator.namespace and settings.install in ("auto", "always"):
        yield told(
            ("jobSet", "namespace"),
            settings.namespace,
            "this is the GPU Operator's namespace, which allows privileged Pods",
            f"write a namespace of its own, such as {DEFAULT_NAMESPACE}",
        )


def _teams(draft: Draft) -> Iterator[Told]:
    yield from _repeated("teams", "name", ((index, team.name) for index, team in draft.teams.items()))
    first: dict[str, int] = {}
    for index, team in draft.teams.items():
        namespace = team.namespace_name
        field = "namespace" if team.namespace else "name"
        same = first.setdefault(namespace, index)
        if same != index and draft.teams[same].name != team.name:
            yield told(
                ("teams", index, field),
                namespace,
                f"{full_key('teams', same)} has the same namespace, and two teams would share one quota and"
                " one set of rights",
                "give each team its own namespace",
            )
        if draft.gpu_operator and namespace == draft.gpu_operator.namespace:
            yield told(
                ("teams", index, field),
                namespace,
                "this is the GPU Operator's namespace, which allows privileged Pods",
                "give the team its own namespace",
            )
        if draft.job_set and namespace == draft.job_set.namespace:
            yield told(
                ("teams", index, field),
                namespace,
                "this is the JobSet controller's namespace, whose webhook the team's rules would cut off",
                "give the team its own namespace",
            )


def _runs(draft: Draft) -> Iterator[Told]:
    yield from _repeated("runs", "id", ((index, run.id) for index, run in draft.runs.items()))
    for index, run in draft.runs.items():
        path: Path = ("runs", index)
        yield from _reference(path, "team", run.team, draft.team_names, "teams")
        yield from _reference(path, "pool", run.pool, draft.pool_names, "nodePools")
        if run.controller == "jobset":
            yield from _as_job_set(path, run, draft)
        yield from _resources(path, run, draft)
        yield from _program(path, run)
        yield from _volumes(path, run)
        yield from _variables(path, run)
        yield from _metadata(path, run)


def _reference(
    path: Path, field: str, name: str, known: frozenset[str] | None, section: str
) -> Iterator[Told]:
    if known is not None and name not in known:
        meant = closest(name, sorted(known))
        names = ", ".join(sorted(known)) or "none"
        yield told(
            (*path, field),
            name,
            f"there is no {field} of this name in {full_key(section)}",
            f"did you mean {meant}?" if meant else f"write one of its names ({names}), or add it there",
        )


def _as_job_set(path: Path, run: RunSettings, draft: Draft) -> Iterator[Told]:
    if draft.job_set and draft.job_set.install == "never":
        yield told(
            (*path, "controller"),
            run.controller,
            "holdfast:jobSet.install = never says that the cluster has no JobSet controller, so nothing would"
            " make the run's Pod",
            "write controller: job; or as holdfast:jobSet.install write auto, or existing if somebody else"
            " has installed it",
        )
    if len(run.id) > LONGEST_JOBSET_RUN_ID:
        yield told(
            (*path, "id"),
            run.id,
            f"it has {len(run.id)} characters, and a JobSet's Pods have longer names, which leave"
            f" {LONGEST_JOBSET_RUN_ID} for the id",
            "shorten it, or write controller: job",
        )


def _resources(path: Path, run: RunSettings, draft: Draft) -> Iterator[Told]:
    requested, limited = run.requests.gpus, run.limits.gpus
    if requested is not None and limited is not None and requested != limited:
        yield told(
            (*path, "limits", "gpus"),
            limited,
            f"the run requests {requested}, and Kubernetes takes nvidia.com/gpu only with request and limit"
            " equal",
            f"write {requested} in both, or only in one of them",
        )
    for resource in ("cpu", "memory"):
        request, limit = getattr(run.requests, resource), getattr(run.limits, resource)
        if parse(request) > parse(limit):
            yield told(
                (*path, "requests", resource),
                request,
                f"the request is more than the limit, {limit}",
                f"write {limit} or less, or raise limits.{resource}",
            )
    if parse(run.shared_memory) >= parse(run.limits.memory):
        yield told(
            (*path, "sharedMemory"),
            run.shared_memory,
            f"/dev/shm counts against the memory limit, {run.limits.memory}, so filling it would get the run"
            " killed",
            "write less than limits.memory, or raise limits.memory",
        )


def _program(path: Path, run: RunSettings) -> Iterator[Told]:
    if PurePosixPath(run.command[0]).name in _SHELLS:
        yield told(
            (*path, "command"),
            run.command[0],
            "a shell as the first process keeps SIGTERM from the trainer, so a preempted run saves nothing",
            "write the program itself, in exec form, such as [/app/holdfast-run, --]",
        )
    for number, argument in enumerate(run.args or ()):
        _, root, below = argument.partition(f"{CHECKPOINT_ROOT}/")
        directory = below.split("/")[0]
        if root and directory != run.id and not directory.startswith("$("):
            yield told(
                (*path, "args", number),
                argument,
                f"{CHECKPOINT_ROOT}/{directory} is not this run's directory, and two runs must never write"
                " to one",
                f"write {argument.replace(f'{root}{directory}', run.checkpoint_dir, 1)}",
            )


def _volumes(path: Path, run: RunSettings) -> Iterator[Told]:
    names: set[str] = set(OUR_VOLUMES)
    mounts: set[str] = set()
    for number, volume in enumerate(run.volumes):
        here = (*path, "volumes", number)
        if volume.name in names:
            owner = "the Job itself has" if volume.name in OUR_VOLUMES else "another volume of the run has"
            yield told((*here, "name"), volume.name, f"{owner} a volume of this name", "choose another name")
        names.add(volume.name)
        mount = volume.mount_path
        if mount in mounts:
            yield told(
                (*here, "mountPath"),
                mount,
                "another volume of the run is mounted there",
                "choose another path",
            )
        mounts.add(mount)
        for reserved in RESERVED_MOUNTS:
            if mount == reserved or reserved.startswith(f"{mount}/"):
                yield told(
                    (*here, "mountPath"),
                    mount,
                    f"it would hide {reserved}, which the Job mounts itself",
                    "choose a path of its own, such as /data",
                )
            elif mount.startswith(f"{reserved}/") and not volume.below_reserved:
                yield told(
                    (*here, "mountPath"),
                    mount,
                    f"it lies inside {reserved}, which the Job mounts itself",
                    "choose a path of its own, such as /data, or allow it with belowReserved: true",
                )


def _variables(path: Path, run: RunSettings) -> Iterator[Told]:
    taken = dict.fromkeys(run.env, "env")
    for number, secret in enumerate(run.secrets):
        if secret.env is None:
            continue
        if secret.env in taken:
            yield told(
                (*path, "secrets", number, "env"),
                secret.env,
                f"the variable is already set by {taken[secret.env]}",
                "choose another variable, or remove one of the two",
            )
        taken[secret.env] = f"secrets[{number}]"


def _metadata(path: Path, run: RunSettings) -> Iterator[Told]:
    for field, given in (("labels", run.labels), ("annotations", run.annotations)):
        for key, value in given.items():
            if key in _OUR_KEYS or key in _OUR_ANNOTATIONS or key.split("/")[0] == "holdfast.dev":
                yield told((*path, field, key), value, "the Job sets this key itself", "choose another key")
