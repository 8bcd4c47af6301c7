"""Make the virtual environment from the hashed requirements, then start `ops` in it. Standard library only.

Runs with whatever Python the entry script found. A stamp, written last, says that the environment is whole.
One without it (an interrupted run), of other requirements, or of a Python that is gone is made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / ".venv.lock"
STAMP_NAME = "holdfast-{name}.json"
HEARTBEAT_SECONDS = 15.0
EXIT_UNAVAILABLE = 4  # as in ops/exit_codes.py, which can not be imported from here

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)


class BootstrapError(Exception):
    """The environment can not be made; the text says why and what to do."""


def pins(requirements: Path) -> dict[str, str]:
    """Package name (normalised) to version, as pinned in a compiled requirements file."""
    return {_normal(name): version for name, version in _PIN.findall(requirements.read_text())}


def is_whole(venv: Path, requirements: Path, name: str = "requirements") -> bool:
    """True when the environment was finished from exactly this file and nothing of it has gone since."""
    try:
        stamp = json.loads((venv / STAMP_NAME.format(name=name)).read_text())
    except (OSError, ValueError):
        return False
    python = venv / "bin" / "python"
    if stamp.get("requirements") != _digest(requirements) or stamp.get("base") != os.path.realpath(python):
        return False
    site = venv / stamp.get("site", "")
    if not python.exists() or not site.is_dir():  # exists() follows the link: a removed Python is seen
        return False
    return set(stamp["packages"]) <= _installed(site)


def ensure_venv(root: Path = ROOT) -> Path:
    """The path of the environment's Python; makes or repairs the environment first where needed."""
    venv, requirements = root / ".venv", root / "requirements.txt"
    if not is_whole(venv, requirements):
        with _lock(root / LOCK.name):
            if not is_whole(venv, requirements):  # another run may have made it while we waited
                _make(venv, requirements)
    return venv / "bin" / "python"


def ensure_packages(requirements: Path, name: str, root: Path = ROOT) -> None:
    """Install one more hashed requirements file into the environment, once per content."""
    venv = root / ".venv"
    if is_whole(venv, requirements, name):
        return
    with _lock(root / LOCK.name):
        if not is_whole(venv, requirements, name):
            _install(venv, requirements, f"Installing the packages of {requirements.relative_to(root)}")
            _write_stamp(venv, requirements, name)


def main(arguments: Sequence[str]) -> int:
    try:
        python = ensure_venv()
    except BootstrapError as error:
        print(error, file=sys.stderr)
        return EXIT_UNAVAILABLE
    except KeyboardInterrupt:
        print("Stopped. The next ./holdfast starts the installation anew.", file=sys.stderr)
        return 130
    keep_bytecode(os.environ)
    # -P: the folder that a person happens to be in must not lend its modules to ours.
    os.execv(python, [str(python), "-P", str(ROOT / "ops" / "__main__.py"), *arguments])


def keep_bytecode(environ: MutableMapping[str, str]) -> None:
    """Where no bytecode may lie beside the sources, it goes to our cache: without any, each process (the
    engine's program, the policy pack, the tests) compiles all its packages anew, which takes seconds.
    """
    if not environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        return
    # The same folder as rehearsal/state.py's, which can not be imported from here.
    caches = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = environ.get("HOLDFAST_CACHE") or str(Path(caches) / "holdfast")
    environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(cache).absolute() / "bytecode"))


def _make(venv: Path, requirements: Path) -> None:
    if venv.exists():
        _say("Making .venv anew: it is unfinished, or its requirements or its Python have changed.")
        (venv / STAMP_NAME.format(name="requirements")).unlink(missing_ok=True)
        shutil.rmtree(venv)
    # Not sys.executable: with .venv activated that is a link in the very folder that was just removed.
    python = os.path.realpath(sys.executable)
    if uv := shutil.which("uv"):
        command = [uv, "venv", "--quiet", "--python", python, str(venv)]
    else:
        command = [python, "-m", "venv", str(venv)]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        detail = (made.stderr or made.stdout).strip().splitlines()
        raise BootstrapError(
            f"{python} can not make a virtual environment: {detail[-1] if detail else 'it gave no reason'}\n"
            "Install what is missing (Debian and Ubuntu: apt-get install python3-venv) or uv, then try again."
        )
    _install(venv, requirements, "Installing the Python packages of requirements.txt")
    _write_stamp(venv, requirements, "requirements")


def _install(venv: Path, requirements: Path, title: str) -> None:
    """Install by hash only. The file is complete, so nothing is resolved and nothing outside it comes in."""
    count = len(pins(requirements))
    _say(f"{title} ({count}, once) ...")
    log = venv / f"install-{requirements.parent.name}.log"
    python = str(venv / "bin" / "python")
    flags = ["--require-hashes", "--no-deps", "-r", str(requirements)]
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", python, *flags]
    else:
        command = [
            python,
            "-m",
            "pip",
            "install",
            "--no-input",
            "--progress-bar",
            "off",
            "--no-compile",
            *flags,
        ]
    started = spoken = time.monotonic()
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - spoken >= HEARTBEAT_SECONDS:
                    spoken = time.monotonic()
                    _say(f"... {spoken - started:.0f} s: {_last_line(log)}")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").strip().splitlines()[-8:])
        raise BootstrapError(
            f"The packages of {requirements} could not be installed:\n{tail}\n"
            f"The whole log is {log}. Check the network, or the index that pip is set to, and try again."
        )
    _say(f"{title}: done in {time.monotonic() - started:.0f} s.")


def _write_stamp(venv: Path, requirements: Path, name: str) -> None:
    site = next((venv / "lib").glob("python3*/site-packages"))
    wanted = pins(requirements)
    # A pin with a marker for another platform is not installed: only what is here can be missing later.
    packages = sorted(item for item in _installed(site) if item.split("==")[0] in wanted)
    stamp = {
        "requirements": _digest(requirements),
        "base": os.path.realpath(venv / "bin" / "python"),
        "site": str(site.relative_to(venv)),
        "packages": packages,
    }
    target = venv / STAMP_NAME.format(name=name)
    draft = target.with_suffix(".tmp")
    draft.write_text(json.dumps(stamp, indent=1) + "\n")
    os.replace(draft, target)


def _installed(site: Path) -> set[str]:
    """name==version of every installed distribution, from folder names: no import, a few milliseconds."""
    found = set()
    for entry in os.listdir(site):
        if entry.endswith(".dist-info"):
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            found.add(f"{_normal(name)}=={version}")
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip()[:100] if lines else "starting"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Two runs at once: the second waits for the first, and then finds the work done."""
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Waiting for another holdfast that is installing the Python packages ...")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
