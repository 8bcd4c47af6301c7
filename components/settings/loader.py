"""From parsed configuration values to validated settings, or every problem at once. No Pulumi in here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from components.planning import checks
from components.settings import consistency
from components.settings.base import Settings
from components.settings.choices import unknown_pool_kind
from components.settings.cluster import ClusterSettings
from components.settings.draft import Draft
from components.settings.explain import closest, explain, missing_fix, needs_list
from components.settings.formats import DnsLabel, slug
from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.job_set import JobSetSettings
from components.settings.node_pool import KINDS, NodePoolSettings, kind_of_pool
from components.settings.problems import Problem, SettingsError, full_key, hide, is_private, show
from components.settings.run import RunSettings
from components.settings.stack import SETTING_KEYS, StackSettings
from components.settings.substitution import Path, Substitution
from components.settings.team import TeamSettings

Model = TypeVar("Model", bound=BaseModel)
_REQUIRED = ("environment", "cluster", "nodePools")


class _Environment(Settings):
    """The one setting that is plain text, so that it is explained like all others."""

    environment: DnsLabel


def load_settings(
    values: Mapping[str, Any], environ: Mapping[str, str], secret_keys: Collection[str] = ()
) -> StackSettings:
    """The stack's settings.

    `values`: every configuration value of the namespace `holdfast`, parsed, by key without the namespace.
    `environ`: where `${NAME}` in texts comes from. `secret_keys`: keys whose values are never shown.
    Raises SettingsError with all problems.
    """
    return _Loading(values, environ, secret_keys).settings()


class _Loading:
    """One load: collects problems section by section, then across what is valid."""

    def __init__(
        self, values: Mapping[str, Any], environ: Mapping[str, str], secret_keys: Collection[str]
    ) -> None:
        self._given = values
        self._secret_keys = frozenset(secret_keys)
        self._substitution = Substitution(environ)
        self._problems: list[tuple[Path, Problem]] = []
        self._values = {
            key: self._substitution.apply(value, (key,))
            for key, value in values.items()
            if key in SETTING_KEYS
        }

    def settings(self) -> StackSettings:
        for key in self._given:
            if key not in SETTING_KEYS:
                self._unknown(key)
        environment = self._model(
            _Environment, {k: v for k, v in self._values.items() if k == "environment"}, ()
        )
        cluster = self._section(ClusterSettings, "cluster")
        pools = self._pools()
        operator = self._section(GpuOperatorSettings, "gpuOperator", GpuOperatorSettings())
        job_set = self._section(JobSetSettings, "jobSet", JobSetSettings())
        teams = self._elements(TeamSettings, "teams")
        runs = self._elements(RunSettings, "runs")
        draft = Draft(pools, operator, job_set, teams, runs, self._names("nodePools"), self._names("teams"))
        self._problems += [*consistency.problems(draft), *checks.problems(draft)]
        problems = self._in_order()
        if problems or environment is None or cluster is None or operator is None or job_set is None:
            raise SettingsError(problems)
        # Every part has been validated where it was read; a second time would build the validators of every
        # kind of pool.
        return StackSettings.model_construct(
            environment=environment.environment,
            cluster=cluster,
            node_pools=tuple(pools.values()),
            gpu_operator=operator,
            job_set=job_set,
            teams=tuple(teams.values()),
            runs=tuple(runs.values()),
        )

    def _add(self, path: Path, reason: str, fix: str) -> None:
        self._problems.append((path, Problem(full_key(*path), None, reason, fix)))

    def _unknown(self, key: str) -> None:
        meant = closest(key, SETTING_KEYS)
        fix = (
            f"did you mean {full_key(meant)}? Otherwise remove it"
            if meant
            else (f"remove it; the settings are {', '.join(full_key(name) for name in SETTING_KEYS)}")
        )
        self._add((key,), "there is no such setting, so it would have no effect", fix)

    def _model(self, model: type[Model], value: Any, path: Path) -> Model | None:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self._problems += explain(error, model, path)
            return None

    def _section(self, model: type[Model], key: str, default: Model | None = None) -> Model | None:
        if key in self._values:
            return self._model(model, self._values[key], (key,))
        if default is None:
            self._add((key,), "it is missing", missing_fix(key))
        return default

    def _pools(self) -> dict[int, NodePoolSettings]:
        found: dict[int, NodePoolSettings] = {}
        for index, item in self._list("nodePools"):
            kind = kind_of_pool(item)
            model = KINDS.get(kind) if isinstance(kind, str) else None
            if model is None:
                # Without its kind nothing else about a pool can be judged.
                shown = None if isinstance(kind, (Mapping, list)) else show(kind)
                path: Path = ("nodePools", index, "kind")
                self._problems.append(
                    (path, Problem(full_key(*path), shown, *unknown_pool_kind(kind, KINDS)))
                )
            elif (pool := self._model(model, item, ("nodePools", index))) is not None:
                found[index] = pool
        return found

    def _elements(self, model: type[Model], key: str) -> dict[int, Model]:
        found = {index: self._model(model, item, (key, index)) for index, item in self._list(key)}
        return {index: item for index, item in found.items() if item is not None}

    def _list(self, key: str) -> Iterable[tuple[int, Any]]:
        value = self._values.get(key, [])
        if not isinstance(value, list):
            self._add((key,), *needs_list(value, key in _REQUIRED))
            return ()
        if key in _REQUIRED and not value:
            self._add((key,), "it is missing" if key not in self._values else "it is empty", missing_fix(key))
        return enumerate(value)

    def _names(self, key: str) -> frozenset[str] | None:
        items = self._values.get(key, [])
        if not isinstance(items, list) or (not items and key in _REQUIRED):
            # A section that is missing or has the wrong shape is a problem of its own, told once.
            return None
        names = [item.get("name") if isinstance(item, Mapping) else None for item in items]
        # A name that is no Kubernetes name is told once; what refers to its corrected form is right.
        known = frozenset(slug(name) for name in names if isinstance(name, str)) - {""}
        return known if all(isinstance(name, str) for name in names) else None

    def _in_order(self) -> list[Problem]:
        unresolved = {path for path, _ in self._substitution.problems}
        # What is left of a text with a reference that leads nowhere is not judged a second time.
        told = [item for item in self._problems if item[0] not in unresolved] + self._substitution.problems
        order = {key: index for index, key in enumerate(SETTING_KEYS)}

        def position(item: tuple[Path, Problem]) -> tuple[int, int]:
            first, second = (*item[0], "", "")[:2]
            return order.get(str(first), len(order)), second if isinstance(second, int) else -1

        return [self._without_secrets(path, problem) for path, problem in sorted(told, key=position)]

    def _without_secrets(self, path: Path, problem: Problem) -> Problem:
        if problem.value is None or not (is_private(*path) or path[0] in self._secret_keys):
            return problem
        raw: Any = self._values
        for part in path:
            raw = raw[part]
        return hide(problem, raw)
