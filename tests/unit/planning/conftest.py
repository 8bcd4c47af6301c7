"""Settings of a self-managed cluster, made by the loader as in the program, with changes by keyword."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.planning.stack import StackPlan, plan_stack
from components.settings.loader import load_settings
from components.settings.stack import StackSettings

IMAGE = "docker.io/acme/trainer@sha256:" + "a" * 64


@pytest.fixture
def stack() -> Callable[..., StackSettings]:
    """Settings of one pool, one team and one run; the keywords change each of them and the operator, and
    `only_pool` replaces the pool.
    """

    def settings(
        *,
        pool: dict[str, Any] | None = None,
        only_pool: dict[str, Any] | None = None,
        operator: dict[str, Any] | None = None,
        job_set: dict[str, Any] | None = None,
        team: dict[str, Any] | None = None,
        run: dict[str, Any] | None = None,
        more_pools: tuple[dict[str, Any], ...] = (),
        more_runs: tuple[dict[str, Any], ...] = (),
    ) -> StackSettings:
        base_pool = {
            "name": "gpu",
            "profile": "self-managed-driver-toolkit",
            "selectNodes": {"matchLabels": {"rack": "a"}},
            "gpusPerNode": 2,
        }
        base_team = {"name": "ml-batch", "group": "ml", "checkpointStorage": {"storageClass": "shared"}}
        base_run = {"id": "run-001", "team": "ml-batch", "pool": "gpu", "image": IMAGE}
        values = {
            "environment": "dev",
            "cluster": {"kubeconfig": "/home/ada/.kube/config", "context": "lab"},
            "nodePools": [only_pool or base_pool | (pool or {}), *more_pools],
            "gpuOperator": operator or {},
            "jobSet": job_set or {},
            "teams": [base_team | (team or {})],
            "runs": [base_run | (run or {}), *(base_run | more for more in more_runs)],
        }
        return load_settings(values, {})

    return settings


@pytest.fixture
def plan(stack: Callable[..., StackSettings]) -> Callable[..., StackPlan]:
    """The plan of `stack(…)`."""

    def planned(**changes: Any) -> StackPlan:
        return plan_stack(stack(**changes))

    return planned


@pytest.fixture
def data() -> Path:
    """Fixtures as data."""
    return Path(__file__).parent / "data"
