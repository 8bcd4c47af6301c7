"""The page of the ownership table."""

from __future__ import annotations

import json

import pytest

from ops import docs_ownership as page

TABLE = json.loads(page.TABLE.read_text())


def test_the_ownership_page_is_what_the_table_says() -> None:
    assert page.TARGET.read_text() == page.render(), "run: .venv/bin/python -m ops.docs_ownership --write"


def test_every_row_has_a_section_and_every_refusal_its_whole_message() -> None:
    text = page.render()
    for name, row in TABLE["profiles"].items():
        assert f"\n## {name}\n" in text
        assert row["reject"] is None or f"**Refused:** {row['reject']}\n" in text


def test_no_source_of_the_table_is_kept_for_nothing() -> None:
    used = set()
    for row in TABLE["profiles"].values():
        for sources in [row["sources"], *(item["sources"] for item in (row["settings"] or {}).values())]:
            used |= {source.partition("#")[0] for source in sources}
    assert set(TABLE["sources"]) <= used


@pytest.mark.parametrize(
    ("source", "link"),
    [
        ("gpu-operator#140", "[gpu-operator#140](https://github.com/NVIDIA/gpu-operator/issues/140)"),
        ("profile eks-ubuntu", "[profile eks-ubuntu](#eks-ubuntu)"),
    ],
)
def test_a_source_leads_to_where_it_is(source: str, link: str) -> None:
    assert page.source_link(source, TABLE["sources"]) == link
