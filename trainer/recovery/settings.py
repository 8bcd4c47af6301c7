"""The environment of the Pod, read once. A problem is one sentence: variable, value, fix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.recovery.adoption_options import Adoption, split_options
from trainer.recovery.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")
DEFAULT_GRACE_SECONDS = 120.0
DEFAULT_MAX_ATTEMPTS_WITHOUT_PROGRESS = 5


@dataclass(frozen=True)
class Identity:
    """Who this attempt is: what a container can not see by itself and is told by the downward API."""

    run_id: str
    attempt: int = 1
    image: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    node: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], checkpoint_dir: Path) -> Identity:
        """Without HOLDFAST_RUN_ID the run is named after its checkpoint directory."""
        told = environ.get("HOLDFAST_RUN_ID", "").strip()
        run_id = told or checkpoint_dir.name
        if not _NAME.fullmatch(run_id):
            source = "HOLDFAST_RUN_ID is" if told else "HOLDFAST_RUN_ID is not set and the directory is"
            raise BadInput(
                f"{source} {run_id!r}, which is no run id: use letters, digits, '-', '_' and '.', "
                "for example run-001."
            )
        image = environ.get("HOLDFAST_IMAGE", "").strip() or None
        if image and not _DIGEST.fullmatch(image):
            raise BadInput(
                f"HOLDFAST_IMAGE is {image!r}, which does not end in a digest: set it to the reference that "
                "the Job runs, NAME@sha256: and 64 hex digits."
            )
        return cls(
            run_id=run_id,
            attempt=_whole(environ, "HOLDFAST_ATTEMPT", 1, least=1),
            image=image,
            pod=environ.get("HOLDFAST_POD_NAME") or None,
            pod_uid=environ.get("HOLDFAST_POD_UID") or None,
            node=environ.get("HOLDFAST_NODE_NAME") or None,
        )

    def fields(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Settings:
    """What the supervisor is told. Times in seconds."""

    checkpoint_dir: Path
    identity: Identity
    program: tuple[str, ...]
    grace_seconds: float
    max_attempts_without_progress: int
    deadline_seconds: float | None = None
    adoption: Adoption | None = None


def termination_log(environ: Mapping[str, str]) -> Path | None:
    """Where the last words go; read apart, because problems with the rest are told there too."""
    place = environ.get("HOLDFAST_TERMINATION_LOG", "").strip()
    return Path(place) if place else None


def read_settings(environ: Mapping[str, str], arguments: Sequence[str]) -> Settings:
    """Settings from the environment and `[OPTION…] [--] PROGRAM ARGUMENT…`. Raises BadInput."""
    adoption, words = split_options(arguments)
    program = tuple(words)
    if not program or program[0].startswith("-"):
        given = " ".join(arguments) or "nothing"
        raise BadInput(
            f"holdfast-run was given {given!r} instead of a program: write `holdfast-run -- PROGRAM "
            "ARGUMENT…`."
        )
    checkpoint_dir = _checkpoint_dir(environ, program)
    return Settings(
        checkpoint_dir=checkpoint_dir,
        identity=Identity.from_environment(environ, checkpoint_dir),
        program=program,
        grace_seconds=_seconds(environ, "HOLDFAST_GRACE_SECONDS", example=120) or DEFAULT_GRACE_SECONDS,
        max_attempts_without_progress=_whole(
            environ, "HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS", DEFAULT_MAX_ATTEMPTS_WITHOUT_PROGRESS, least=1
        ),
        deadline_seconds=_seconds(environ, "HOLDFAST_DEADLINE_SECONDS", example=14400),
        adoption=adoption,
    )


def _checkpoint_dir(environ: Mapping[str, str], program: Sequence[str]) -> Path:
    """HOLDFAST_CHECKPOINT_DIR, else the program's own --checkpoint-dir."""
    told = environ.get("HOLDFAST_CHECKPOINT_DIR", "").strip()
    source = "HOLDFAST_CHECKPOINT_DIR"
    if not told:
        told, source = _argument(program, "--checkpoint-dir"), "--checkpoint-dir"
    if not told:
        raise BadInput(
            "HOLDFAST_CHECKPOINT_DIR is not set and the program has no --checkpoint-dir: set it to the run's "
            "directory on the checkpoint volume, for example /checkpoints/run-001."
        )
    path = Path(told)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise BadInput(
            f"{source} is {told!r}, which is not an absolute directory: write the run's directory on the "
            "checkpoint volume, for example /checkpoints/run-001."
        )
    return path


def _argument(program: Sequence[str], name: str) -> str | None:
    for position, word in enumerate(program):
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
        if word == name and position + 1 < len(program):
            return program[position + 1]
    return None


def _whole(environ: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise BadInput(
            f"{name} is {environ[name]!r}: write a whole number of at least {least}, for example {default}."
        )
    return int(text)


def _seconds(environ: Mapping[str, str], name: str, example: int) -> float | None:
    """A positive number of seconds, or None where the variable is not set."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or float(text) <= 0:
        raise BadInput(
            f"{name} is {environ[name]!r}: write seconds as a positive number, for example {example}."
        )
    return float(text)
