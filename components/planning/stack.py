"""The whole stack, decided: the one call from the settings to plain values that the components take."""

from __future__ import annotations

from dataclasses import dataclass

from components.planning.node_pools import NodePoolPlan
from components.planning.operator_plan import OperatorPlan
from components.planning.run import RunPlan
from components.planning.team import TeamPlan
from components.settings.stack import StackSettings


@dataclass(frozen=True)
class StackPlan:
    """Everything that the stack creates, and what a person should know about it."""

    environment: str
    kubeconfig: str
    context: str
    cluster_identifier: str
    pools: tuple[NodePoolPlan, ...]
    operator: OperatorPlan | None
    """None where the pools' profiles bring everything themselves."""
    teams: tuple[TeamPlan, ...]
    runs: tuple[RunPlan, ...]
    """In the order of the configuration, cancelled ones included."""
    warnings: tuple[str, ...]


def plan_stack(settings: StackSettings) -> StackPlan:
    """The plan of a stack whose settings came from `load_settings`."""
    raise NotImplementedError
