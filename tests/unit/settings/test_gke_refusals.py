"""Every refusal of a pool on GKE by its full text: one change to a sound pool, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CASES = yaml.load((Path(__file__).parent / "data" / "gke.yaml").read_text(encoding="utf-8"), Loader=LOADER)


@pytest.fixture
def on_gke(sound: dict[str, Any]) -> dict[str, Any]:
    """The sound configuration with its pool on GKE."""
    pool = {
        "name": "gpu",
        "kind": "gke",
        "gke": {
            "cluster": "training",
            "location": "us-central1",
            "nodeLocations": ["us-central1-a"],
            "version": "1.33.5-gke.1201000",
            "machineType": "a3-highgpu-8g",
            "serviceAccount": "gpu-nodes@acme-ml.iam.gserviceaccount.com",
            "maxNodes": 4,
        },
    }
    return {**sound, "nodePools": [pool]}


def test_the_pool_that_the_cases_change_is_sound(
    on_gke: dict[str, Any], problems_of: Callable[..., list[str]]
) -> None:
    assert problems_of(on_gke) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sentence"])
def test_a_pool_on_gke_that_can_not_work_is_refused_in_plain_words(
    case: dict[str, Any], on_gke: dict[str, Any], problems_of: Callable[..., list[str]]
) -> None:
    pool = on_gke["nodePools"][0]
    pool["gke"].update(case.get("gke", {}))
    pool.update(case.get("pool", {}))
    on_gke["runs"][0].update(case.get("run", {}), pool=pool["name"])
    on_gke["teams"][0]["quota"] = case.get("quota", {})
    assert problems_of(on_gke) == [text.strip() for text in case["problems"]]


def test_two_teams_do_not_share_gpus_in_time(
    on_gke: dict[str, Any], problems_of: Callable[..., list[str]]
) -> None:
    on_gke["nodePools"][0]["gke"]["accelerator"] = {"sharing": {"strategy": "MPS", "maxClientsPerGpu": 2}}
    on_gke["teams"].append({**on_gke["teams"][0], "name": "vision"})
    on_gke["runs"].append({**on_gke["runs"][0], "id": "run-002", "team": "vision"})
    first, second = problems_of(on_gke)
    assert first == (
        'holdfast:runs[0].pool = "gpu"\n    Its GPUs are shared without any isolation of memory or faults,'
        " and team"
        ' "vision" has runs there too.\n    Fix: give each team a pool of its own, or remove'
        " gke.accelerator.sharing"
        " from the pool."
    )
    assert second.startswith('holdfast:runs[1].pool = "gpu"') and 'team "ml-batch"' in second
