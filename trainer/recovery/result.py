"""The result, committed exactly once: metrics, step, and artifacts by hash.

Artifacts are published by content (`artifacts/SHA256/NAME`), so that two attempts that finish at once never
touch each other's, and `result.json` is created exclusively. Whoever finds one verifies it; it is never
written over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainer.recovery.errors import Unverified
from trainer.recovery.events import now
from trainer.recovery.files import (
    NO_HARD_LINKS,
    create_exclusively,
    encode_json,
    fsync_path,
    parse_json,
    read_json,
    replace_whole,
    sha256_of,
)
from trainer.recovery.generation import ARTIFACTS, RESULT, Generation

FORMAT = "holdfast.result/1"
OUTCOME = "outcome.json"
# Without hard links a result is seen while it is written; a writer that takes longer has died.
HALF_WRITTEN_SECONDS = 5.0


@dataclass(frozen=True)
class Outcome:
    """What a program hands over. artifacts: name to path in the working directory."""

    step: int
    metrics: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """A published file: path relative to the run's directory, bytes, hex SHA-256 of the whole file."""

    name: str
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Result:
    """What result.json says."""

    run_id: str
    step: int
    generation: int
    attempt: int
    image: str | None
    metrics: Mapping[str, Any]
    artifacts: tuple[Artifact, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    committed_at: str = field(default_factory=now)
    pod: str | None = None
    node: str | None = None


def hand_over(generation: Generation, outcome: Outcome) -> None:
    """Written by the program when it is done; the supervisor commits it. Raises Superseded when fenced."""
    try:
        replace_whole(
            generation.work_dir / OUTCOME, encode_json(asdict(outcome)), scratch=generation.work_dir
        )
    except FileNotFoundError:
        generation.check_current()
        raise


def read_outcome(generation: Generation) -> Outcome | None:
    """The program's outcome, or None when it has not handed one over. Raises Unverified for anything else."""
    try:
        outcome = Outcome(**parse_json(generation.work_dir / OUTCOME))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (TypeError, ValueError) as error:
        raise Unverified(f"{OUTCOME} is not an outcome: {error}") from error
    objects = (outcome.metrics, outcome.artifacts, outcome.details)
    kinds = [(outcome.step, int), *((part, dict) for part in objects)]
    if any(not isinstance(value, kind) or isinstance(value, bool) for value, kind in kinds):
        raise Unverified(f"{OUTCOME} is not an outcome: a whole step and three objects are expected")
    for name, place in outcome.artifacts.items():
        if not _is_inside(name, 1) or not isinstance(place, str) or not _is_inside(place):
            raise Unverified(f"{OUTCOME} names the artifact {name!r} at {place!r}, outside of its directory")
    return outcome


def _is_inside(path: str, parts: int | None = None) -> bool:
    found = Path(path).parts
    return bool(found) and ".." not in found and found[0] != "/" and (parts is None or len(found) == parts)


def commit(generation: Generation, outcome: Outcome, identity: Mapping[str, Any]) -> bool:
    """Publish the artifacts and commit the result: True when ours is the one, False when there was one
    already.

    Raises Superseded when a newer generation took over before the artifacts were published, OSError when the
    volume refuses, Unverified when an artifact is not there.
    """
    try:
        artifacts = tuple(
            _publish(generation, name, generation.work_dir / path)
            for name, path in sorted(outcome.artifacts.items())
        )
        result = Result(
            run_id=str(identity.get("run_id", "")),
            step=outcome.step,
            generation=generation.number,
            attempt=int(identity.get("attempt", 1)),
            image=identity.get("image"),
            metrics=outcome.metrics,
            artifacts=artifacts,
            details=outcome.details,
            pod=identity.get("pod"),
            node=identity.get("node"),
        )
        content = encode_json({"format": FORMAT, **asdict(result)})
        return create_exclusively(generation.run_dir / RESULT, content, scratch=generation.work_dir)
    except FileNotFoundError:
        generation.check_current()
        raise


def find(run_dir: Path, patience: float = HALF_WRITTEN_SECONDS) -> Result | None:
    """The committed result, or None.

    Raises Unverified if it is not whole after `patience` seconds, and OSError for a volume that fails.
    """
    path = run_dir / RESULT
    until = time.monotonic() + patience
    while _is_there(path):
        if (found := read_json(path)) is not None:
            return parse(found)
        if time.monotonic() >= until:
            raise Unverified(f"{path} is not a whole JSON object")
        time.sleep(0.1)
    return None


def _is_there(path: Path) -> bool:
    """Raises OSError for a volume that can not tell now: a run that is done would be trained again."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def verify(run_dir: Path, result: Result) -> None:
    """Check every artifact against the result. Raises Unverified naming the file."""
    for artifact in result.artifacts:
        path = run_dir / artifact.path
        if not _is_inside(artifact.path):
            raise Unverified(f"the artifact {artifact.name} is outside of {run_dir}")
        try:
            size = os.lstat(path).st_size
            if size != artifact.size:
                raise Unverified(f"the artifact {artifact.path} has {size} bytes instead of {artifact.size}")
            if sha256_of(path) != artifact.sha256:
                raise Unverified(f"the artifact {artifact.path} differs from its hash")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Unverified(f"the artifact {artifact.path} is missing") from error
        except ValueError as error:
            raise Unverified(f"the artifact {artifact.path} is not a plain file") from error


def settle(run_dir: Path) -> None:
    """Flush a result that was found: whoever committed it may have died before it did."""
    fsync_path(run_dir / RESULT)
    fsync_path(run_dir)


def _publish(generation: Generation, name: str, source: Path) -> Artifact:
    """Give an artifact its final, content-addressed place. Publishing the same content twice is one file."""
    try:
        digest = sha256_of(source)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        generation.check_current()
        # A link would be published as a link, into a directory that the next attempt renames.
        raise Unverified(f"the artifact {name!r} is not a plain file at {source}") from error
    fsync_path(source)
    folder = generation.run_dir / ARTIFACTS / digest
    os.makedirs(folder, exist_ok=True)
    target = folder / name
    try:
        os.link(source, target)
    except FileExistsError:
        if sha256_of(target) != digest:  # left by a dead attempt on a volume that lost its content
            os.replace(source, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        os.replace(source, target)
    fsync_path(target)
    for parent in (folder, folder.parent, generation.run_dir):
        fsync_path(parent)
    path = target.relative_to(generation.run_dir).as_posix()
    return Artifact(name, path, target.stat().st_size, digest)


def parse(found: Mapping[str, Any]) -> Result:
    """The result that a JSON object is. Raises Unverified for one that is none."""
    try:
        if found["format"] != FORMAT:
            raise Unverified(f"{RESULT} is of the unknown format {found['format']!r}")
        fields = {key: value for key, value in found.items() if key != "format"}
        artifacts = tuple(Artifact(**artifact) for artifact in fields.pop("artifacts"))
        result = Result(artifacts=artifacts, **fields)
    except (KeyError, TypeError) as error:
        raise Unverified(f"{RESULT} is not a result: {error}") from error
    kinds = [(result.step, int), (result.generation, int), (result.run_id, str), (result.metrics, dict)]
    kinds += [(text, str) for entry in artifacts for text in (entry.name, entry.path, entry.sha256)]
    for value, kind in kinds:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Unverified(f"{RESULT} is not a result: it has {value!r} where {kind.__name__} is expected")
    return result
