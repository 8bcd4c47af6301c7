"""Which stack a verb works on, and which cluster that stack names: never what happens to be current."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ops.errors import OpsError
from ops.exit_codes import ExitCode

if TYPE_CHECKING:
    from components.settings.stack import StackSettings

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_STACK = "dev"
REHEARSAL_VARIABLE = "HOLDFAST_KUBECONFIG"
REHEARSAL_STAND_IN = {
    REHEARSAL_VARIABLE: "/nowhere/kubeconfig",
    "HOLDFAST_TRAINER_IMAGE": "docker.io/holdfast/trainer@sha256:" + "0" * 64,
    "HOLDFAST_OPERATOR_IMAGE": "docker.io/holdfast/rehearsal-gpu-operator@sha256:" + "0" * 64,
    "HOLDFAST_JOBSET_CHART": "/nowhere/jobset",
    "HOLDFAST_JOBSET_DIGEST": "0" * 64,
}


@dataclass(frozen=True)
class Stack:
    """A stack's name, its file, and the file's `config` block as written (variables not replaced yet)."""

    name: str
    file: Path
    config: Mapping[str, Any]

    @property
    def rehearsal(self) -> bool:
        """True where the stack names the rehearsal cluster's kubeconfig: by what it says, not by its name."""
        cluster = self.config.get("holdfast:cluster")
        kubeconfig = cluster.get("kubeconfig") if isinstance(cluster, Mapping) else None
        return isinstance(kubeconfig, str) and f"${{{REHEARSAL_VARIABLE}}}" in kubeconfig


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one map, as the engine does; PyYAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} stands twice in one map", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load_stack(name: str, root: Path = ROOT) -> Stack:
    """Read Pulumi.<name>.yaml. Errors: no such file (lists those there are), not YAML, no `config` block."""
    short = name.rsplit("/", 1)[-1]  # organization/project/stack: the file is named after the last part
    path = root / f"Pulumi.{short}.yaml"
    if not path.is_file():
        known = sorted(file.name.split(".")[1] for file in root.glob("Pulumi.*.yaml"))
        raise OpsError(
            f"There is no stack file {path.name}.",
            f"Stacks here: {', '.join(known) or 'none'}. Copy one of their files and name it with --stack.",
            ExitCode.USAGE,
        )
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or {}
    except UnicodeDecodeError:
        raise OpsError(f"{path.name} is not UTF-8 text.", "Save it as UTF-8.", ExitCode.USAGE) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise OpsError(
            f"{path.name}{where} is not YAML: {problem}.", "Correct that line and try again.", ExitCode.USAGE
        ) from None
    config = document.get("config") if isinstance(document, Mapping) else None
    if not isinstance(config, Mapping):
        raise OpsError(
            f"{path.name} has no `config:` block.",
            "See docs/configuration.md for what goes there.",
            ExitCode.USAGE,
        )
    return Stack(name=name, file=path, config={str(key): value for key, value in config.items()})


def environment(stack: Stack) -> dict[str, str]:
    """The environment in which the engine runs for this stack: the rehearsal's, or the shell's as it is."""
    if not stack.rehearsal:
        return dict(os.environ)
    from rehearsal import cluster

    return {**os.environ, **cluster.environment()}


@dataclass(frozen=True)
class Target:
    """One cluster: the path of a kubeconfig and the context in it."""

    kubeconfig: str
    context: str


def target(stack: Stack, env: Mapping[str, str]) -> Target:
    """The cluster that the stack's configuration names, variables replaced by the settings loader."""
    cluster = settings(stack, env).cluster
    return Target(str(cluster.kubeconfig), cluster.context)


def settings(stack: Stack, env: Mapping[str, str]) -> StackSettings:
    """The stack's validated settings, as the program reads them. Raises SettingsError with every problem."""
    from components.settings.loader import load_settings

    prefix = "holdfast:"
    values = {
        key.removeprefix(prefix): value for key, value in stack.config.items() if key.startswith(prefix)
    }
    return load_settings(_without_ciphertext(values), env)


def _without_ciphertext(value: Any) -> Any:
    """Secrets stand in the file as {secure: ciphertext}. Only the engine reads them; here any text serves."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return "secret"
        return {key: _without_ciphertext(item) for key, item in value.items()}
    return [_without_ciphertext(item) for item in value] if isinstance(value, list) else value


def check(stack: Stack) -> None:
    """Tell a mistake in the configuration now, not after the minutes in which a first cluster is made.

    The values that only a cluster can give (its kubeconfig, image digests) are stood in for.
    """
    stand_in = REHEARSAL_STAND_IN if stack.rehearsal else {}
    settings(stack, {**stand_in, **os.environ})


def run_names(stack: Stack) -> list[str]:
    """The ids of the runs that the stack declares, in order."""
    return [str(run["id"]) for run in _declared_runs(stack)]


def cancelled_runs(stack: Stack) -> list[str]:
    """The ids of the runs that the stack declares cancelled, in order."""
    return [str(run["id"]) for run in _declared_runs(stack) if run.get("cancelled") is True]


def _declared_runs(stack: Stack) -> list[Mapping[str, Any]]:
    runs = stack.config.get("holdfast:runs")
    return [run for run in (runs if isinstance(runs, list) else []) if isinstance(run, Mapping) and run.get("id")]
