"""The model itself: it loses what was not flushed, keeps what was, and sees every call."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processes.crash_model.disk import Disk, Tree, materialise, real_tree
from tests.processes.crash_model.exploring import folder
from tests.processes.crash_model.recorder import Recorder

CHECKOUT = Path(__file__).resolve().parents[3]


def write(path: Path, content: bytes, flush: bool = False) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        if flush:
            os.fsync(stream.fileno())


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def last_disk(root: Path, work: Callable[[Path], None]) -> Disk:
    recorder = Recorder(root)
    with recorder.recording():
        work(root)
    return list(recorder.disks())[-1][1]


def states(root: Path, work: Callable[[Path], None]) -> list[Tree]:
    disk = last_disk(root, work)
    assert disk.everything().tree() == real_tree(root)
    return [disk.after(fates).tree() for fates in disk.fates(random.Random(0), drawn=5)]


def test_a_file_that_nobody_flushed_may_be_absent_empty_torn_zeros_or_whole(tmp_path: Path) -> None:
    found = states(tmp_path, lambda root: write(root / "a", b"abcd"))
    assert {str(tree.get("a")) for tree in found} == {"None", "b''", "b'ab'", str(bytes(4)), "b'abcd'"}


def test_a_flushed_file_in_a_directory_that_was_not_may_be_absent_but_not_torn(tmp_path: Path) -> None:
    found = states(tmp_path, lambda root: write(root / "a", b"abcd", flush=True))
    assert {tree.get("a") for tree in found} == {None, b"abcd"}


def test_a_flushed_directory_keeps_the_name_of_a_file_but_not_what_is_in_it(tmp_path: Path) -> None:
    found = states(tmp_path, lambda root: (write(root / "a", b"abcd"), flush(root)) and None)
    assert {tree["a"] for tree in found} == {b"", b"ab", bytes(4), b"abcd"}


def test_what_was_flushed_with_its_directory_is_in_every_state(tmp_path: Path) -> None:
    found = states(tmp_path, lambda root: (write(root / "a", b"abcd", flush=True), flush(root)) and None)
    assert found == [{"a": b"abcd"}]


def renamed_over(root: Path) -> None:
    write(root / "old", b"1", flush=True)
    write(root / "new", b"2", flush=True)
    flush(root)
    os.rename(root / "new", root / "old")


def test_a_rename_leads_to_the_old_or_the_new_content_and_never_to_nothing(tmp_path: Path) -> None:
    found = states(tmp_path, renamed_over)
    assert {tree["old"] for tree in found} == {b"1", b"2"}


def renamed_away(root: Path) -> None:
    (root / "from").mkdir()
    (root / "to").mkdir()
    write(root / "from" / "a", b"1", flush=True)
    for path in (root / "from", root / "to", root):
        flush(path)
    os.rename(root / "from" / "a", root / "to" / "a")


def test_a_file_renamed_across_directories_may_be_under_both_names_but_is_never_lost(tmp_path: Path) -> None:
    found = states(tmp_path, renamed_away)
    assert {("from/a" in tree, "to/a" in tree) for tree in found} == {
        (True, False),
        (False, True),
        (True, True),
    }


def test_a_directory_has_one_name_whatever_of_its_renames_survives(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "a").mkdir()
        flush(root)
        os.rename(root / "a", root / "b")
        os.rename(root / "b", root / "c")

    assert {tuple(tree) for tree in states(tmp_path, work)} == {("a",), ("b",), ("c",)}


def test_an_unlink_that_was_not_flushed_may_not_have_happened(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        write(root / "a", b"1", flush=True)
        flush(root)
        os.unlink(root / "a")

    assert {tuple(tree) for tree in states(tmp_path, work)} == {(), ("a",)}


def test_content_whose_flush_failed_is_not_durable_after_the_next_one_that_succeeds(tmp_path: Path) -> None:
    failed: list[str] = []

    def fails_once(name: str, place: str) -> None:
        if name == "fsync" and not failed:
            failed.append(place)
            raise OSError(5, "Input/output error")

    recorder = Recorder(tmp_path, fails_once)
    with recorder.recording():
        with pytest.raises(OSError, match="Input/output error"):
            write(tmp_path / "a", b"abcd", flush=True)
        flush(tmp_path / "a"), flush(tmp_path)
    *_, (_, disk) = recorder.disks()
    assert b"" in {disk.after(fates).tree()["a"] for fates in disk.fates(random.Random(0), drawn=0)}


NAMES = st.sampled_from(["a", "b", "a/x", "a/y", "b/x"])
WORK = st.lists(
    st.tuples(
        st.sampled_from(["write", "mkdir", "rename", "link", "unlink", "rmtree", "flush", "append"]),
        NAMES,
        NAMES,
    ),
    max_size=14,
)


def do(root: Path, name: str, one: Path, two: Path) -> None:
    """One piece of work, which may well be impossible."""
    try:
        match name:
            case "write":
                write(one, two.name.encode() * 3)
            case "append":
                with open(one, "ab") as stream:
                    stream.write(b"more")
            case "mkdir":
                os.mkdir(one)
            case "rename":
                os.rename(one, two)
            case "link":
                os.link(one, two)
            case "unlink":
                one.unlink()
            case "rmtree":
                shutil.rmtree(one)
            case "flush":
                flush(one)
    except OSError:
        pass  # as it would be without a recorder, and `everything` shows whether the model agrees


@settings(max_examples=120, deadline=None)
@given(WORK)
def test_the_model_and_the_real_directory_never_differ(work: list[tuple[str, str, str]]) -> None:
    with folder() as root:
        recorder = Recorder(root)
        with recorder.recording():
            for name, one, two in work:
                do(root, name, root / one, root / two)
        *_, (_, disk) = recorder.disks()
        assert disk.everything().tree() == real_tree(root)
        for fates in disk.fates(random.Random(0), drawn=2):
            tree = disk.after(fates).tree()
            with folder() as room:
                materialise(tree, room)
                assert real_tree(room) == tree


@pytest.mark.parametrize(
    "work",
    [
        lambda root: os.symlink("a", root / "b"),
        lambda root: os.truncate(root / "a", 0),
        lambda root: os.mkfifo(root / "b"),
        lambda root: os.rename(root / "a", root.parent / "a"),
    ],
)
def test_what_the_model_does_not_know_is_refused_instead_of_happening_beside_it(
    tmp_path: Path, work: Callable[[Path], None]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").touch()
    with Recorder(root).recording(), pytest.raises(AssertionError, match="not modelled"):
        work(root)
    assert os.listdir(root) == ["a"]


def test_the_interpreter_itself_sees_no_call_that_was_not_recorded() -> None:
    """Python's audit events, as many as calls were recorded. In a process of its own: hooks stay."""
    command = [sys.executable, "-m", "tests.processes.crash_model.audit"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
