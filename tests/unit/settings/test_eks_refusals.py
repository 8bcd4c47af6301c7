"""Every refusal of a pool on EKS by its full text: one change to a sound pool, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CASES = yaml.load((Path(__file__).parent / "data" / "eks.yaml").read_text(encoding="utf-8"), Loader=LOADER)


@pytest.fixture
def on_eks(sound: dict[str, Any]) -> dict[str, Any]:
    """The sound configuration with its pool on EKS."""
    pool = {
        "name": "gpu",
        "kind": "eks",
        "eks": {
            "cluster": "training",
            "subnetIds": ["subnet-0a1b2c3d4e5f60718"],
            "nodeRoleArn": "arn:aws:iam::123456789012:role/gpu-nodes",
            "amiType": "AL2023_x86_64_NVIDIA",
            "releaseVersion": "1.34.2-20261120",
            "instanceTypes": ["g6.12xlarge"],
            "maxSize": 4,
        },
    }
    return {**sound, "nodePools": [pool]}


def test_the_pool_that_the_cases_change_is_sound(
    on_eks: dict[str, Any], problems_of: Callable[..., list[str]]
) -> None:
    assert problems_of(on_eks) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sentence"])
def test_a_pool_on_eks_that_can_not_work_is_refused_in_plain_words(
    case: dict[str, Any], on_eks: dict[str, Any], problems_of: Callable[..., list[str]]
) -> None:
    pool = on_eks["nodePools"][0]
    pool["eks"].update(case.get("eks", {}))
    for key in case.get("without", ()):
        del pool["eks"][key]
    pool.update(case.get("pool", {}))
    on_eks["nodePools"] += [{**pool, **more} for more in case.get("more", ())]
    on_eks["runs"][0].update(case.get("run", {}))
    assert problems_of(on_eks) == [text.strip() for text in case["problems"]]
