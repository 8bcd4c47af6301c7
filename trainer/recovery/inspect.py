"""What a run's directory holds, as one JSON object: `python3 -m trainer.recovery.inspect DIR [--verify]`.

For people and machines that look on. It claims nothing and writes nothing, and it never fails on what it
finds: the directory may belong to a run that goes on meanwhile, and may hold anything under any name. What
can not be read is told as a `problem`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.recovery import manifest as manifests
from trainer.recovery import result as results
from trainer.recovery.checkpoints import step_of
from trainer.recovery.errors import Unverified
from trainer.recovery.events import now
from trainer.recovery.files import LARGEST_JSON, finite, open_plain, parse_json, sha256_of
from trainer.recovery.generation import (
    ARTIFACTS,
    CLAIMS,
    HEARTBEAT,
    RESULT,
    TEMPORARY,
    generation_of_claim,
    generation_of_folder,
)
from trainer.recovery.retention import SET_ASIDE
from trainer.recovery.volume import reason_of

MOST_READS = 5  # of a directory that changes each time
_SHA256 = re.compile(r"[0-9a-f]{64}")
USAGE = "usage: python3 -m trainer.recovery.inspect DIR [--verify]"


def inspect(run_dir: Path, verify: bool = False) -> dict[str, Any]:
    """What is there now: `claims`, `working`, `result`, `artifacts`, `heartbeat`; empty when it is absent.

    verify: read every checkpoint and artifact and compare all hashes; else `verified` is None, and only sizes
    are compared. `problems` tells what has no place of its own to be told at, `reads` how often the directory
    was read because a part of it went away meanwhile (an attempt took over, or a checkpoint was too old).
    """
    notes = []
    for reads in range(1, MOST_READS + 1):
        look = _Look(run_dir, verify)
        found = look.at_everything()
        gone = look.what_went_away()
        if not gone:
            break
        again = "read again" if reads < MOST_READS else "this is what the last reading saw"
        notes.append(f"{', '.join(gone)} went away or was renamed while it was read: {again}")
    head = {"directory": str(run_dir), "at": now(), "reads": reads}
    return {**head, **found, "problems": notes + look.problems}


class _Look:
    """One reading of the directory. Every method returns, whatever stands there."""

    def __init__(self, run_dir: Path, verify: bool) -> None:
        self.run_dir, self.verify = run_dir, verify
        self.problems: list[str] = []
        self._seen: list[Path] = []

    def at_everything(self) -> dict[str, Any]:
        names = self._names(self.run_dir, follow=True)
        claims = self._names(self.run_dir / CLAIMS) if CLAIMS in names else []
        working = self._working(names)
        return {
            "claims": [self._claim(name) for name in sorted(claims, key=_number) if _number(name)],
            "working": [self._generation(number) for number in working],
            "result": self._result() if RESULT in names else None,
            "artifacts": self._artifacts() if ARTIFACTS in names else [],
            "heartbeat": self._heartbeat(working[-1]) if working else None,
        }

    def what_went_away(self) -> list[str]:
        return [str(path.relative_to(self.run_dir)) for path in self._seen if not os.path.lexists(path)]

    def _names(self, folder: Path, follow: bool = False) -> list[str]:
        """Sorted names in a directory, none for what is absent or no directory of its own."""
        try:
            if not follow and not stat.S_ISDIR(os.lstat(folder).st_mode):
                self.problems.append(f"{self._name(folder)} is not a directory")
                return []
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            self.problems.append(f"{self._name(folder)} can not be listed: {reason_of(error)}")
            return []

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.run_dir)) if path != self.run_dir else str(path)

    def _json(self, path: Path) -> tuple[dict[str, Any], str]:
        """A JSON object and "", or an empty one and what is wrong with it."""
        try:
            value = parse_json(path)
        except FileNotFoundError:
            return {}, "is missing"
        except OSError as error:
            return {}, f"can not be read: {reason_of(error)}"
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            return {}, f"is not JSON: {error}"
        except ValueError as error:  # no plain file, too large, nested too deeply
            return {}, str(error)
        return (value, "") if isinstance(value, dict) else ({}, f"is {type(value).__name__}, not an object")

    def _claim(self, name: str) -> dict[str, Any]:
        record, problem = self._json(self.run_dir / CLAIMS / name)
        # The name is the claim; the content only tells about it.
        return {**record, "generation": _number(name), **({"problem": problem} if problem else {})}

    def _working(self, names: Sequence[str]) -> list[int]:
        found = []
        for name in names:
            if (number := generation_of_folder(name)) is None:
                continue
            try:
                if stat.S_ISDIR(os.lstat(self.run_dir / name).st_mode):
                    found.append(number)
                else:
                    self.problems.append(f"{name} is not a directory")
            except FileNotFoundError:
                found.append(number)  # renamed since it was listed, which `what_went_away` tells
            except OSError as error:
                self.problems.append(f"{name} can not be looked at: {reason_of(error)}")
        self._seen += [self.run_dir / f"generation-{number}" for number in found]
        return sorted(found)

    def _generation(self, number: int) -> dict[str, Any]:
        folder = self.run_dir / f"generation-{number}"
        names = self._names(folder)
        steps = sorted(step for name in names if (step := step_of(name)) is not None)
        return {
            "generation": number,
            "steps": [self._step(folder / f"step-{step}", step) for step in steps],
            "temporary": [name for name in names if name.startswith(TEMPORARY)],
            "set_aside": self._names(folder / SET_ASIDE) if SET_ASIDE in names else [],
        }

    def _step(self, folder: Path, step: int) -> dict[str, Any]:
        self._seen.append(folder)
        told = dict.fromkeys(("digest", "size", "generation", "attempt", "created_at"))
        try:
            manifest = manifests.read(folder)
            told = {name: getattr(manifest, name) for name in told}
            if manifest.step != step:
                raise Unverified(f"{manifests.NAME} is of step {manifest.step}")
            (manifests.verify if self.verify else manifests.check_sizes)(folder, manifest)
            problem = ""
        except Unverified as error:
            problem = str(error)
        except OSError as error:
            problem = f"can not be read: {reason_of(error)}"
        if problem and not os.path.lexists(folder):
            problem = "went away while it was read"
        verified = not problem if self.verify else None
        return {"step": step, "verified": verified, **told, "problem": problem}

    def _result(self) -> dict[str, Any]:
        path = self.run_dir / RESULT
        record, problem = self._json(path)
        digest = None
        try:
            digest = _small_sha256(path)
            if not problem:
                found = results.parse(record)
                if self.verify:
                    results.verify(self.run_dir, found)
        except Unverified as error:
            problem = str(error)
        except OSError as error:
            problem = problem or f"can not be read: {reason_of(error)}"
        except ValueError as error:
            problem = problem or str(error)
        verified = not problem if self.verify else None
        return {**record, "sha256": digest, "verified": verified, "problem": problem}

    def _artifacts(self) -> list[dict[str, Any]]:
        found = []
        for digest in self._names(self.run_dir / ARTIFACTS):
            folder = self.run_dir / ARTIFACTS / digest
            if _SHA256.fullmatch(digest):
                found += [self._artifact(folder / name, digest) for name in self._names(folder)]
            else:
                self.problems.append(f"{self._name(folder)} is not named by a SHA-256")
        return found

    def _artifact(self, path: Path, digest: str) -> dict[str, Any]:
        size, problem = None, ""
        try:
            about = os.lstat(path)
            size = about.st_size
            if not stat.S_ISREG(about.st_mode):
                problem = "is not a plain file"
            elif self.verify and sha256_of(path) != digest:
                problem = "differs from its hash"
        except (OSError, ValueError) as error:
            problem = f"can not be read: {reason_of(error) if isinstance(error, OSError) else error}"
        verified = not problem if self.verify else None
        return {"name": path.name, "sha256": digest, "size": size, "verified": verified, "problem": problem}

    def _heartbeat(self, number: int) -> dict[str, Any] | None:
        path = self.run_dir / f"generation-{number}" / HEARTBEAT
        if not os.path.lexists(path):
            return None
        record, problem = self._json(path)
        if problem:
            self.problems.append(f"{self._name(path)} {problem}")
        return record or None


def _number(name: str) -> int:
    """The generation that a claim's name claims, 0 for another file."""
    return generation_of_claim(name) or 0


def _small_sha256(path: Path) -> str:
    with open(open_plain(path), "rb") as stream:
        return hashlib.sha256(stream.read(LARGEST_JSON + 1)).hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Print the object; 2 for wrong arguments."""
    folders = [argument for argument in arguments if argument != "--verify"]
    if len(folders) != 1 or not folders[0] or folders[0].startswith("-"):
        given = " ".join(arguments) or "nothing"
        print(f"One run's directory is wanted, not {given!r}.\n{USAGE}", file=sys.stderr)
        return 2
    print(json.dumps(finite(inspect(Path(folders[0]), "--verify" in arguments)), allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
