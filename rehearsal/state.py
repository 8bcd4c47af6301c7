"""Where the rehearsal keeps things, and the one file in which it writes down what it made."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rehearsal.errors import RehearsalError

CHECKOUT = Path(__file__).resolve().parent.parent


def rehearsal_id() -> str:
    """Eight hex digits that tell this rehearsal's interfaces, cgroups and namespaces from another checkout's."""
    return hashlib.sha256(str(state_dir()).encode()).hexdigest()[:8]


def state_dir() -> Path:
    """The folder that lives and dies with the cluster: $HOLDFAST_STATE, or one below /var/lib/holdfast per checkout.

    The default is short on purpose: unix socket paths below it must stay under 108 bytes.
    """
    if chosen := os.environ.get("HOLDFAST_STATE"):
        return Path(chosen).absolute()
    return Path("/var/lib/holdfast") / hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]


def cache_dir() -> Path:
    """The folder that outlives clusters and is shared by checkouts: toolchain and images, keyed by version or content."""
    if chosen := os.environ.get("HOLDFAST_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "holdfast"


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file as a whole, so that a reader or a crash never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Held while something enters the cache; a second command waits and then finds it there. The lock file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def keep_newest(folders: Iterable[Path], count: int) -> None:
    """Remove all but the folders that were used last."""
    for old in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[count:]:
        shutil.rmtree(old, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that nothing depends on; empty where it is missing or broken."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def read_record(name: str) -> dict[str, Any]:
    """One JSON record of the state folder; empty where it does not exist."""
    path = state_dir() / f"{name}.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise RehearsalError(
            f"The rehearsal's record {path} can not be read: {error}.", "Run `./holdfast down` and then `./holdfast up`."
        ) from error


def write_record(name: str, record: dict[str, Any]) -> None:
    write_atomically(state_dir() / f"{name}.json", json.dumps(record, indent=2, sort_keys=True) + "\n", mode=0o600)


@contextlib.contextmanager
def lock(name: str = "rehearsal") -> Iterator[None]:
    """Held while the cluster is changed, so that two commands at once do not start everything twice.

    The file is outside the state folder, because `down` removes that folder while it holds the lock.
    """
    path = Path("/run/lock" if os.access("/run/lock", os.W_OK) else tempfile.gettempdir()) / f"holdfast-{rehearsal_id()}-{name}"
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RehearsalError(
                "Another holdfast command is changing this rehearsal cluster.", "Wait until it has ended and try again."
            ) from error
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
