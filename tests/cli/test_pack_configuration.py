"""What a person writes with --policy-pack-config, through the real engine: levels and exceptions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.engine import Engine, Said, write_project
from tests.cli.recorded import POLICIES, refusals
from tests.cli.test_bypass import PROGRAMS

RULE = "image-by-digest"
LEGACY = {
    "resource": "*::train",
    "reason": "Moves to digests with the next release.",
    "expires": "2999-12-31",
}
Judge = Callable[[Any], Said]


@pytest.fixture(scope="module")
def judged(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Previews a program with an image by tag; the pack's configuration is the argument."""
    folder = tmp_path_factory.mktemp("configured")
    write_project(folder, {"name": "configured"})
    shutil.copy(PROGRAMS / "common.py", folder / "common.py")
    shutil.copy(PROGRAMS / "tag_image.py", folder / "__main__.py")
    (folder / "rendered").mkdir()
    assert engine.run(folder, "stack", "init", "dev").code == 0

    def preview(config: Any) -> Said:
        (folder / "pack.json").write_text(json.dumps(config))
        flags = (*POLICIES, "--policy-pack-config", "pack.json")
        rendered = str(folder / "rendered")
        return engine.run(folder, "preview", "--stack", "dev", *flags, RENDER_DIRECTORY=rendered)

    return preview


def test_without_a_word_the_rule_is_mandatory(judged: Judge) -> None:
    said = judged({})
    assert said.code != 0 and refusals(said) == {RULE}, said.text


@pytest.mark.parametrize("config", [{"all": "advisory"}, {RULE: "advisory"}], ids=["all rules", "one rule"])
def test_an_advisory_rule_tells_and_stops_nothing(config: dict[str, Any], judged: Judge) -> None:
    said = judged(config)
    assert said.code == 0, said.text
    assert f"  {RULE}  (" in said.text and "[advisory]" in said.text, said.text


def test_a_rule_that_is_turned_off_says_nothing(judged: Judge) -> None:
    said = judged({RULE: "disabled"})
    assert said.code == 0 and RULE not in said.text, said.text


def test_an_exception_with_a_reason_and_a_date_excuses_its_resource(judged: Judge) -> None:
    said = judged({RULE: {"exceptions": [LEGACY]}})
    assert said.code == 0 and "[mandatory]" not in said.text, said.text


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        ({**LEGACY, "expires": "2020-01-31"}, "expired on 2020-01-31"),
        ({**LEGACY, "resource": "other"}, "@sha256:"),
        ({key: value for key, value in LEGACY.items() if key != "reason"}, "no reason"),
        ({**LEGACY, "expires": "soon"}, "which is no date"),
    ],
    ids=["has run out", "is about another resource", "has no reason", "has no date"],
)
def test_an_exception_that_excuses_nothing_leaves_the_refusal_and_says_why(
    exception: dict[str, str], words: str, judged: Judge
) -> None:
    said = judged({RULE: {"exceptions": [exception]}})
    assert said.code != 0 and words in said.text and "Traceback" not in said.text, said.text
