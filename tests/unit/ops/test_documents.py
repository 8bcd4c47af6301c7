"""Documents that are made from the code, or that must agree with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from components.settings.stack import StackSettings
from ops import docs_configuration as page
from ops import docs_policies
from ops.exit_codes import MEANING

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)")


def test_the_configuration_page_is_what_the_models_say() -> None:
    assert page.TARGET.read_text() == page.render(), "run: .venv/bin/python -m ops.docs_configuration --write"


def test_the_policies_page_is_what_the_pack_s_catalogue_says() -> None:
    assert docs_policies.TARGET.read_text() == docs_policies.render(), "run: .venv/bin/python -m ops.docs_policies --write"


def test_every_setting_has_a_meaning() -> None:
    silent = [
        f"{path}: {name}"
        for path, model in page.sections(StackSettings, "holdfast:")
        for name in model.model_fields
        if not page.meaning(model, name)
    ]
    assert silent == []


def test_no_meaning_is_kept_for_a_setting_that_is_gone() -> None:
    known = {
        f"{model.__name__}.{name}"
        for _, model in page.sections(StackSettings, "")
        for name in model.model_fields
    }
    assert set(page.ALSO) <= known


def test_the_page_knows_required_and_default_values() -> None:
    text = page.render()
    assert "| `deadlineSeconds` | `14400` | whole number, 1 to 31536000 |" in text
    assert re.search(r"^\| `id` \| required \| text \| Id of the run", text, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = [
        link
        for link in LINK.findall(document.read_text())
        if "://" not in link and not link.startswith("mailto:")
    ]
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_page_of_the_command_line_has_every_exit_code() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert all(f"| {int(code)} | {words} |" in text for code, words in MEANING.items())


def test_every_direct_dependency_is_explained() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    for file in ("requirements.in", "trainer/requirements.in"):
        lines = (ROOT / file).read_text().splitlines()
        names = [
            re.split(r"[=\[;<>~ ]", line)[0] for line in lines if line.strip() and not line.startswith("#")
        ]
        assert [name for name in names if f"| {name} |" not in text] == [], file


def test_every_third_party_program_is_explained_with_its_version() -> None:
    from rehearsal.toolchain.programs import PROGRAMS

    text = (ROOT / "docs" / "dependencies.md").read_text()
    assert [p.name for p in PROGRAMS.values() if f"| {p.name} | {p.version} |" not in text] == []


def test_every_readme_command_is_a_verb_that_exists() -> None:
    from typer.main import get_command

    from ops.cli import app

    verbs = set(get_command(app).commands)  # type: ignore[attr-defined]
    for document in DOCUMENTS:
        used = set(re.findall(r"\./holdfast ([a-z]+)", document.read_text()))
        assert used <= verbs, document.name


def test_the_tracked_stack_holds_nothing_of_one_machine() -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    assert "encryptionsalt" not in text and "sha256:" not in text
    paths = [v for v in re.findall(r":\s+(/[\w./-]+)", text)]
    assert paths == []
    assert yaml.safe_load(text)["config"]["holdfast:environment"] == "dev"
