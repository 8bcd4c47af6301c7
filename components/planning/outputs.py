"""The stack's outputs: what a person needs next."""

from __future__ import annotations

from typing import Any

from components.planning.stack import StackPlan


def stack_outputs(plan: StackPlan) -> dict[str, Any]:
    """environment, nodePools, teams, runs, next and warnings, as plain data."""
    raise NotImplementedError
