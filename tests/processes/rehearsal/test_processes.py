"""Long-lived processes are known by pid and start time."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rehearsal import processes
from rehearsal.errors import RehearsalError


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_STATE", str(tmp_path))
    yield
    for name in processes.recorded():
        processes.stop(name, grace_seconds=0)


def test_a_process_that_runs_is_not_started_twice():
    first = processes.start("sleeper", ["sleep", "60"])
    assert processes.start("sleeper", ["sleep", "60"]) == first


def test_a_killed_process_is_noticed_and_started_again():
    first = processes.start("sleeper", ["sleep", "60"])
    os.kill(first.pid, signal.SIGKILL)
    os.waitpid(first.pid, 0)
    assert processes.running("sleeper") is None
    assert processes.start("sleeper", ["sleep", "60"]).pid != first.pid


def test_a_zombie_does_not_count_as_running():
    child = subprocess.Popen(["true"])
    deadline = time.monotonic() + 5
    while processes.start_time(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes.start_time(child.pid) is None
    child.wait()


def test_stop_never_touches_another_process_that_got_the_same_pid():
    other = subprocess.Popen(["sleep", "60"])
    try:
        processes.write_record(processes.RECORD, {"old": {"pid": other.pid, "start": 1}})
        processes.stop("old")
        assert other.poll() is None
        assert "old" not in processes.recorded()
    finally:
        other.kill()
        other.wait()


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace():
    process = processes.start("stubborn", ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
    time.sleep(0.2)
    processes.stop("stubborn", grace_seconds=0.3)
    assert not process.alive()


def test_a_process_that_ends_at_once_is_told_with_its_last_words():
    process = processes.start("brief", ["sh", "-c", "echo no such device >&2; exec sleep 0.2"])
    os.waitpid(process.pid, 0)
    assert processes.running("brief") is None
    assert processes.last_words("brief") == "Its last words: no such device"


def test_a_process_outlives_the_command_that_started_it_by_its_own_session():
    process = processes.start("sleeper", ["sleep", "60"])
    assert os.getsid(process.pid) == process.pid


def test_starting_inside_namespaces_that_ended_is_an_error_with_the_log_s_place(tmp_path):
    gone = processes.Process("gone", 2**22 - 1, 1)
    with pytest.raises(RehearsalError, match=r"could not be started.*Read .*inner\.log"):
        processes.start("inner", ["sleep", "60"], inside=gone)


def test_processes_that_are_started_side_by_side_are_all_recorded():
    names = [f"sleeper-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: processes.start(name, ["sleep", "60"]), names))
    assert sorted(processes.recorded()) == names
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: processes.stop(name, grace_seconds=0), names))
    assert processes.recorded() == {}
