"""Builds from pinned Go modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress
from rehearsal.state import cache_dir, read_json, write_atomically
from rehearsal.toolchain import find, release
from rehearsal.toolchain.programs import HARDLY_RUN, Program

MODULES = Path(__file__).with_name("modules")
OLDEST_GO = (1, 26, 6)
LAUNCHER = "pulumi-language-python-exec"
GIB = 1024**3
# One build leaves a core idle while it downloads, links or compiles its largest package; a second one fills that time.
# Linking takes up to 2 GiB.
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_at_once = threading.Semaphore(2 if MEMORY >= 8 * GIB else 1)
_timings_lock = threading.Lock()
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_running: set[subprocess.Popen[str]] = set()
_starting = threading.Lock()
_stopped = threading.Event()


def build(program: Program, target: Path, progress: Progress) -> None:
    """Build one program and put it at `target` as a whole. Raises RehearsalError with the compiler's last words.

    Programs of one module wait for each other, because they share most packages.
    """
    with _locks[program.module], _at_once:
        if target.exists():
            return
        timings = cache_dir() / "toolchain" / "timings.json"
        known = read_json(timings)
        estimate = known.get(program.name, program.build_seconds)
        go = go_command(progress)
        with progress.step(f"Building {program.name} {program.version} from source", estimate) as step:
            _build(program, target, go)
            # A build that found the compiler's own cache warm says nothing about a cold one.
            if step.elapsed > estimate / 3:
                with _timings_lock:
                    known = read_json(timings)
                    write_atomically(timings, json.dumps({**known, program.name: round(step.elapsed)}))


def _compiler_flags() -> list[str]:
    """What makes compiling cheaper and changes nothing that is seen.

    The linker drops debugging information (-w), so the compiler need not write it: that is 5 % of etcd's compile time and
    20 % of the Kubernetes SDK's in the provider. Stack traces keep their lines. Code that hardly runs need not be inlined:
    a quarter to two fifths of the time of such packages.
    """
    plain = "-dwarf=false"
    return [f"-gcflags=all={plain}", *(f"-gcflags={pattern}={plain} -l" for pattern in HARDLY_RUN)]


def _build(program: Program, target: Path, go: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        # Of the compiler, which is a Go program itself: a sixth of its time goes into collecting garbage. The largest
        # package takes 3.3 GB like this, not 2.1.
        **({"GOGC": "400"} if MEMORY >= 16 * GIB else {}),
        "GOWORK": "off",
    }
    with tempfile.TemporaryDirectory(prefix="holdfast-build-") as scratch:
        folder = Path(scratch) / "module"
        shutil.copytree(MODULES / program.module, folder)
        if program.copied_from:
            source = _module_folder(program.copied_from, go, folder, environment)
            for name in program.copied:
                shutil.copyfile(source / name, folder / Path(name).name)
            for name in program.kept:
                _keep(source / name, target.with_name(Path(name).name + "-chart"))
            if program.name == "pulumi":
                # The SDK's launcher of Python programs is a script in the same module; it belongs beside pulumi.
                launcher = target.with_name(LAUNCHER)
                shutil.copyfile(source / "python" / "cmd" / LAUNCHER, launcher)
                launcher.chmod(0o755)
        partial = Path(scratch) / "built"
        flags = " ".join(("-s", "-w", *program.flags))
        command = ["build", "-trimpath", "-buildvcs=false", *_compiler_flags(), f"-ldflags={flags}"]
        _go(go, [*command, "-o", str(partial), program.package], folder, environment, program)
        whole = target.with_name(f".{target.name}.partial")
        shutil.copyfile(partial, whole)
        whole.chmod(0o755)
        whole.rename(target)


def _keep(source: Path, target: Path) -> None:
    """A folder of a module as files that can be changed and removed: the module cache is read-only."""
    partial = target.with_name(f".{target.name}.partial")
    for folder in (partial, target):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, partial, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(partial):
        os.chmod(folder, 0o755)
    partial.rename(target)


def _module_folder(module: str, go: Path, folder: Path, environment: dict[str, str]) -> Path:
    listed = _go(go, ["mod", "download", "-json", module], folder, environment, None)
    return Path(json.loads(listed)["Dir"])


def _go(go: Path, arguments: list[str], folder: Path, environment: dict[str, str], program: Program | None) -> str:
    with _starting:
        if _stopped.is_set():
            raise RehearsalError("The build was stopped before it began.", "Run the command again.")
        process = subprocess.Popen(
            [go, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        _running.add(process)
    try:
        out, err = process.communicate()
    except BaseException:  # Ctrl-C or a signal to us alone
        process.kill()
        process.wait()
        raise
    finally:
        _running.discard(process)
    if process.returncode:
        words = " / ".join((err or out).strip().splitlines()[-4:])
        what = f"{program.name} {program.version}" if program else arguments[-1]
        raise RehearsalError(
            f"{what} is not on PATH in a version that fits, no official release of it is pinned for this machine, "
            f"and building it from source failed: {words}",
            "Check that the Go module proxy can be reached (`go env GOPROXY`) and that the disk has 5 GB free.",
        )
    return out


def stop() -> None:
    """End every build under way and begin no other until `allow`: what they were for can not be reached any more."""
    with _starting:
        _stopped.set()
        for process in list(_running):
            process.terminate()


def allow() -> None:
    """Builds may begin, whatever was stopped before."""
    _stopped.clear()


def go_command(progress: Progress) -> Path:
    """Go from PATH when it is new enough; else the pinned toolchain, downloaded once."""
    place = shutil.which("go")
    if place:
        said = subprocess.run([place, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/").stdout
        version = find.parse_version(said.replace("go", "v", 1))
        if version and version >= OLDEST_GO:
            return Path(place)
    return release.fetch_go(progress)
