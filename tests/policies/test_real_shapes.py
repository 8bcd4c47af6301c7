"""Whole files as clusters have them: silence about sound ones, and each mistake refused by its rule."""

from pathlib import Path
from typing import Any

import pytest
import yaml

DATA = Path(__file__).parent / "data"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DIGEST = "ab" * 32
CLOUDS = ("aws:", "azure-native:", "gcp:")


def cases(name: str) -> list[Any]:
    text = (DATA / name).read_text(encoding="utf-8").replace("DIGEST", DIGEST)
    return [pytest.param(case, id=case["sentence"]) for case in yaml.load(text, Loader=LOADER)]


def judged(judge, example, case):
    """Every resource by itself, then all of them as one stack."""
    resources = [
        example(
            r["type"] if r["type"].startswith(CLOUDS) else f"kubernetes:{r['type']}",
            r["props"],
            r["name"],
            parent=r.get("parent", ""),
            protect=r.get("protect", False),
        )
        for r in case["resources"]
    ]
    verdicts = [judge.resource(r.type, r.props, r.name, r.protect) for r in resources]
    verdicts.append(judge.stack(*resources))
    return [said for verdict in verdicts for said in verdict.violations + verdict.advisories]


@pytest.mark.parametrize("case", cases("sound.yaml"))
def test_nothing_is_said_of_what_is_sound(judge, example, case):
    assert judged(judge, example, case) == []


@pytest.mark.parametrize("case", cases("mistakes.yaml"))
def test_a_mistake_is_refused_by_the_rule_that_knows_it(judge, example, case):
    assert sorted({rule for rule, _ in judged(judge, example, case)}) == case["rules"]
