"""The configuration while it is being checked: the parts that are valid so far, each with its index."""

from __future__ import annotations

from dataclasses import dataclass

from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.job_set import JobSetSettings
from components.settings.node_pool import NodePoolSettings
from components.settings.run import RunSettings
from components.settings.team import TeamSettings


@dataclass(frozen=True)
class Draft:
    """Valid parts by their index in the configuration, so that checks across them name the right key.

    `pool_names` and `team_names` also hold the names of elements that are not valid: a run that names one
    of them has no second problem. None: not every name can be read.
    """

    node_pools: dict[int, NodePoolSettings]
    gpu_operator: GpuOperatorSettings | None
    job_set: JobSetSettings | None
    teams: dict[int, TeamSettings]
    runs: dict[int, RunSettings]
    pool_names: frozenset[str] | None
    team_names: frozenset[str] | None

    def pool(self, name: str) -> NodePoolSettings | None:
        """The valid pool of that name."""
        return next((pool for pool in self.node_pools.values() if pool.name == name), None)

    def team(self, name: str) -> TeamSettings | None:
        """The valid team of that name."""
        return next((team for team in self.teams.values() if team.name == name), None)
