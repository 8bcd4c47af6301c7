"""The rehearsal's long-lived processes: started once, known by pid and start time, ended by exactly that pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.state import read_record, state_dir, write_record

RECORD = "processes"
_record_changes = threading.Lock()  # nodes are started side by side, and each start is a change of the one record


@dataclass(frozen=True)
class Process:
    """A process by its pid and the kernel's start time, which together are never reused."""

    name: str
    pid: int
    start: int

    def alive(self) -> bool:
        return start_time(self.pid) == self.start

    def log(self) -> Path:
        return log_path(self.name)


def log_path(name: str) -> Path:
    return state_dir() / "logs" / f"{name}.log"


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process began; None where there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def recorded() -> dict[str, Process]:
    return {name: Process(name, **entry) for name, entry in read_record(RECORD).items()}


def _remember(process: Process) -> None:
    with _record_changes:
        record = read_record(RECORD)
        record[process.name] = {"pid": process.pid, "start": process.start}
        write_record(RECORD, record)


def forget(name: str) -> None:
    with _record_changes:
        record = read_record(RECORD)
        if record.pop(name, None):
            write_record(RECORD, record)


def running(name: str) -> Process | None:
    process = recorded().get(name)
    return process if process and process.alive() else None


def start(
    name: str,
    argv: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    inside: Process | None = None,
) -> Process:
    """Start a daemon whose output goes to its log, or return the one that runs already.

    With `inside`, it runs in the namespaces (mount, network, pid, UTS) of that process.
    """
    if process := running(name):
        return process
    log_path(name).parent.mkdir(parents=True, exist_ok=True)
    command = [str(part) for part in argv]
    if inside:
        command = ["nsenter", f"--target={inside.pid}", "--mount", "--net", "--pid", "--uts", "--", *command]
    with log_path(name).open("a") as log:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env=dict(environment) if environment is not None else None,
        )
    pid = _only_child(popen, name) if inside else popen.pid
    began = start_time(pid)
    if began is None:
        raise RehearsalError(f"{name} ended as soon as it was started. {last_words(name)}", f"Read {log_path(name)}.")
    process = Process(name, pid, began)
    _remember(process)
    return process


def _only_child(popen: subprocess.Popen[bytes], name: str) -> int:
    """The process that nsenter or unshare forked, by its pid as this machine sees it."""
    for _ in range(500):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = Path(f"/proc/{popen.pid}/task/{popen.pid}/children").read_text().split()
            if children:
                return int(children[0])
        if popen.poll() is not None:
            break
        time.sleep(0.01)
    raise RehearsalError(f"{name} could not be started. {last_words(name)}", f"Read {log_path(name)}.")


def start_namespace(name: str, network_namespace: str, argv: Sequence[str | Path]) -> Process:
    """Start `argv` as the first process of new mount, pid and UTS namespaces, in an existing network namespace.

    Killing the returned process ends every process of that pid namespace: the kernel does it, none can be missed.
    """
    if process := running(name):
        return process
    log_path(name).parent.mkdir(parents=True, exist_ok=True)
    unshare = ["unshare", "--mount", "--propagation=slave", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    with log_path(name).open("a") as log:
        popen = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{network_namespace}", *unshare, "--", *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    pid = _only_child(popen, name)
    began = start_time(pid)
    if began is None:
        raise RehearsalError(f"{name} could not be started. {last_words(name)}", f"Read {log_path(name)}.")
    process = Process(name, pid, began)
    _remember(process)
    return process


def stop(name: str, *, grace_seconds: float = 5.0) -> None:
    """End one recorded process: SIGTERM, then SIGKILL after the grace. Only ever that pid with that start time."""
    process = recorded().get(name)
    if process:
        if process.alive() and grace_seconds > 0:
            _signal(process, signal.SIGTERM)
            _wait_gone(process, grace_seconds)
        if process.alive():
            _signal(process, signal.SIGKILL)
            _wait_gone(process, 10)
        forget(name)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _wait_gone(process: Process, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while process.alive() and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        time.sleep(0.02)


def last_words(name: str, lines: int = 3) -> str:
    """The last lines of a process's log, for an error message."""
    try:
        tail = log_path(name).read_text(errors="replace").strip().splitlines()[-lines:]
    except FileNotFoundError:
        return ""
    return "Its last words: " + " / ".join(tail) if tail else ""
