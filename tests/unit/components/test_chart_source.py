"""An edited local chart must be seen, an untouched one must not."""

from __future__ import annotations

from pathlib import Path

import pulumi
import pytest

from components.chart_source import fingerprint, local_chart


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    (tmp_path / "chart" / "templates").mkdir(parents=True)
    (tmp_path / "chart" / "Chart.yaml").write_text("name: x\nversion: 1.0.0\n")
    (tmp_path / "chart" / "templates" / "a.yaml").write_text("a: 1\n")
    return tmp_path / "chart"


def test_an_edit_without_a_new_version_changes_the_fingerprint(chart: Path) -> None:
    before = fingerprint(chart, "1.0.0")
    (chart / "templates" / "a.yaml").write_text("a: 2\n")
    assert fingerprint(chart, "1.0.0") != before


def test_a_renamed_template_changes_the_fingerprint(chart: Path) -> None:
    before = fingerprint(chart, "1.0.0")
    (chart / "templates" / "a.yaml").rename(chart / "templates" / "b.yaml")
    assert fingerprint(chart, "1.0.0") != before


def test_another_place_and_python_caches_do_not_change_the_fingerprint(chart: Path, tmp_path: Path) -> None:
    before = fingerprint(chart, "1.0.0")
    (chart / "__pycache__").mkdir()
    (chart / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert fingerprint(chart.rename(tmp_path / "moved"), "1.0.0") == before


def test_a_packed_chart_is_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"1")
    before = fingerprint(tmp_path / "x.tgz", "1.0.0")
    (tmp_path / "x.tgz").write_bytes(b"2")
    assert fingerprint(tmp_path / "x.tgz", "1.0.0") != before


@pytest.mark.parametrize(
    ("chart", "local"),
    [("./charts/x", True), ("../x.tgz", True), ("gpu-operator", False), ("oci://host/x", False)],
)
def test_only_a_path_is_local(chart: str, local: bool) -> None:
    assert (local_chart(chart) is not None) is local


def test_a_folder_of_another_version_than_configured_is_refused(chart: Path) -> None:
    with pytest.raises(pulumi.RunError, match="chart.version = 2.0.0: the chart in .* has version 1.0.0"):
        fingerprint(chart, "2.0.0")
