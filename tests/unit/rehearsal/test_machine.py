"""The preflight of a machine speaks in sentences and says everything at once."""

import os
import platform
import shutil
import sys

import pytest

from rehearsal import machine
from rehearsal.errors import RehearsalError


@pytest.fixture(autouse=True)
def a_good_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, "absent_packages", lambda: [])
    monkeypatch.setattr(machine, "_available_memory_gib", lambda: 16.0)
    monkeypatch.setattr(machine, "_free_disk_gib", lambda folder: 100.0)


def test_a_machine_that_has_everything_has_no_problem():
    assert machine.missing() == []


def test_another_system_than_linux_is_one_sentence_with_the_way_out(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    [problem] = machine.missing()
    assert str(problem).startswith("A rehearsal cluster needs Linux; this is Darwin. Or use a cluster that you have")


def test_everything_that_is_missing_is_said_at_once(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine, "_available_memory_gib", lambda: 1.5)
    monkeypatch.setattr(machine, "_free_disk_gib", lambda folder: 2.0)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(RehearsalError) as error:
        machine.require()
    text = str(error.value)
    for words in ("needs root", "1.5 GiB of memory", "2.0 GiB are free for", "riscv64 is not supported"):
        assert words in text
    assert text.count("\n- ") == 5


def test_a_distribution_without_apt_is_told_which_packages_to_install(monkeypatch):
    monkeypatch.setattr(machine, "absent_packages", lambda: ["runc", "conntrack"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    [problem] = machine.missing()
    assert "runc, conntrack" in problem.problem
    assert "only Debian and Ubuntu are done for you" in problem.fix


def test_an_image_that_can_not_be_built_is_told_before_the_other_builds_end():
    from concurrent.futures import Future

    from rehearsal.cluster import _raise_failed

    going, failed = Future(), Future()
    _raise_failed([going])
    failed.set_exception(RehearsalError("No image.", "Look."))
    with pytest.raises(RehearsalError, match="No image"):
        _raise_failed([going, failed])
