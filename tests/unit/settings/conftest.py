"""A sound configuration for a cluster of somebody's own, and a way to change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from components.settings.loader import load_settings
from components.settings.problems import SettingsError

Config = dict[str, Any]
DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def sound() -> Config:
    """A configuration with one pool, one team and one run; new for each test."""
    return {
        "environment": "dev",
        "cluster": {"kubeconfig": "/home/ada/.kube/config", "context": "lab"},
        "nodePools": [
            {
                "name": "gpu",
                "profile": "self-managed-driver-toolkit",
                "selectNodes": {"matchLabels": {"rack": "a"}},
                "gpusPerNode": 2,
                "taint": {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
            }
        ],
        "gpuOperator": {},
        "teams": [
            {
                "name": "ml-batch",
                "group": "ml-batch-engineers",
                "checkpointStorage": {"storageClass": "shared"},
            }
        ],
        "runs": [
            {
                "id": "run-001",
                "team": "ml-batch",
                "pool": "gpu",
                "image": f"docker.io/acme/trainer@{DIGEST}",
                "requests": {},
                "limits": {},
            }
        ],
    }


@pytest.fixture
def put() -> Callable[[Config, Sequence[Any], Any], None]:
    """Writes a value at a path of the configuration; one past a list's end is appended."""

    def write(config: Config, path: Sequence[Any], value: Any) -> None:
        inside: Any = config
        for part in path[:-1]:
            inside = inside[part]
        if isinstance(inside, list) and path[-1] == len(inside):
            inside.append(value)
        else:
            inside[path[-1]] = value

    return write


@pytest.fixture
def problems_of() -> Callable[..., list[str]]:
    """The full text of every problem of a configuration; an empty list if it is sound."""

    def problems(config: Config, environ: dict[str, str] | None = None, **rest: Any) -> list[str]:
        try:
            load_settings(config, environ or {}, **rest)
        except SettingsError as error:
            return [str(problem) for problem in error.problems]
        return []

    return problems
