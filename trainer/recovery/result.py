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
    """The program's outcome, or None when it has not handed one over."""
    found = read_json(generation.work_dir / OUTCOME)
    return Outcome(**found) if found else None


def commit(generation: Generation, outcome: Outcome, identity: Mapping[str, Any]) -> bool:
    """Publish the artifacts and commit the result: True when ours is the one, False when there was one
    already.

    Raises Superseded when a newer generation took over before the artifacts were published, OSError when the
    volume refuses.
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
    """The committed result, or None. Raises Unverified if it is not whole after `patience` seconds."""
    path = run_dir / RESULT
    until = time.monotonic() + patience
    while path.exists():
        if (found := read_json(path)) is not None:
            return _parse(found)
        if time.monotonic() >= until:
            raise Unverified(f"{path} is not a whole JSON object")
        time.sleep(0.1)
    return None


def verify(run_dir: Path, result: Result) -> None:
    """Check every artifact against the result. Raises Unverified naming the file."""
    for artifact in result.artifacts:
        path = run_dir / artifact.path
        if ".." in Path(artifact.path).parts or Path(artifact.path).is_absolute():
            raise Unverified(f"the artifact {artifact.name} is outside of {run_dir}")
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise Unverified(f"the artifact {artifact.path} is missing") from error
        if size != artifact.size:
            raise Unverified(f"the artifact {artifact.path} has {size} bytes instead of {artifact.size}")
        if sha256_of(path) != artifact.sha256:
            raise Unverified(f"the artifact {artifact.path} differs from its hash")


def _publish(generation: Generation, name: str, source: Path) -> Artifact:
    """Give an artifact its final, content-addressed place. Publishing the same content twice is one file."""
    digest = sha256_of(source)
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
    for parent in (folder, folder.parent, generation.run_dir):
        fsync_path(parent)
    path = target.relative_to(generation.run_dir).as_posix()
    return Artifact(name, path, target.stat().st_size, digest)


def _parse(found: Mapping[str, Any]) -> Result:
    try:
        if found["format"] != FORMAT:
            raise Unverified(f"{RESULT} is of the unknown format {found['format']!r}")
        fields = {key: value for key, value in found.items() if key != "format"}
        artifacts = tuple(Artifact(**artifact) for artifact in fields.pop("artifacts"))
        return Result(artifacts=artifacts, **fields)
    except (KeyError, TypeError) as error:
        raise Unverified(f"{RESULT} is not a result: {error}") from error
