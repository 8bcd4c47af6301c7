"""Labels by which cost and ownership are told: environment, team, run, attempt."""

from __future__ import annotations

PREFIX = "holdfast.dev"
SPOT_LABEL = f"{PREFIX}/spot"
"""Node label of pools whose nodes may be taken away at any time; the policy pack knows it too."""


def environment_labels(environment: str) -> dict[str, str]:
    """Labels of everything that the stack creates."""
    return {
        "app.kubernetes.io/managed-by": "pulumi",
        "app.kubernetes.io/part-of": "holdfast",
        f"{PREFIX}/environment": environment,
    }


def team_labels(environment: str, team: str) -> dict[str, str]:
    """Labels of everything of one team."""
    return {**environment_labels(environment), f"{PREFIX}/team": team}


def run_labels(environment: str, team: str, run: str, attempt: int) -> dict[str, str]:
    """Labels of one run's Job and Pod."""
    return {**team_labels(environment, team), f"{PREFIX}/run": run, f"{PREFIX}/attempt": str(attempt)}
