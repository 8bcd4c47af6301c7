"""Our program through the real engine, with providers that only record: no account, no cluster, every resource."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rehearsal.recording_providers import RECORDING, Recorded, plugins, read
from tests.cli.engine import ROOT, Engine, Said, write_project

POLICIES = ("--policy-pack", str(ROOT / "policies"))
PROGRAM = ("__main__.py", "components", "policies", "rehearsal", "requirements.txt")
# One GPU Operator's chart from NVIDIA's repository, one team and one run: what a pool's kind does not change.
COMMON: Mapping[str, Any] = {
    "holdfast:environment": "production",
    "holdfast:cluster": {"kubeconfig": "/nowhere/kubeconfig", "context": "production"},
    "holdfast:teams": [
        {"name": "ml", "group": "ml-engineers", "checkpointStorage": {"storageClass": "shared"}}
    ],
    "holdfast:runs": [
        {
            "id": "run-001",
            "team": "ml",
            "pool": "gpu",
            "image": "registry.example.com/ml/trainer@sha256:" + "a" * 64,
        }
    ],
}


@dataclass(frozen=True)
class Turn:
    """One command: what it said, and what the providers were asked meanwhile."""

    said: Said
    asked: list[Recorded]

    def of(self, kind: str, operation: str = "create") -> dict[str, dict[str, Any]]:
        """Inputs of every resource of a kind by its name, as the last such call had them."""
        return {
            call.name: call.inputs for call in self.asked if (call.kind, call.operation) == (kind, operation)
        }


@dataclass(frozen=True)
class Project:
    """A folder with our program, stack files of the test's own, and recording providers."""

    folder: Path
    engine: Engine

    @property
    def name(self) -> str:
        """The project's name, as resources have it in their URNs."""
        return str(yaml.safe_load((self.folder / "Pulumi.yaml").read_text())["name"])

    def run(self, *arguments: str, stack: str, **more: str) -> Turn:
        """One command of the CLI on one stack; `more` are environment variables."""
        recording = self.folder / f"recording-{stack}.jsonl"
        recording.unlink(missing_ok=True)
        said = self.engine.run(
            self.folder, *arguments, "--stack", stack, **{RECORDING: str(recording), **more}
        )
        return Turn(said, read(recording))

    def write(self, stack: str, config: Mapping[str, Any] | str) -> None:
        """The stack's file, and the stack itself where it is not there yet."""
        text = (
            config if isinstance(config, str) else yaml.safe_dump({"config": dict(config)}, sort_keys=False)
        )
        if not (self.folder / f"Pulumi.{stack}.yaml").exists():
            made = self.engine.run(self.folder, "stack", "init", stack)
            assert made.code == 0, made.text
        (self.folder / f"Pulumi.{stack}.yaml").write_text(text)

    def state(self, stack: str) -> dict[str, Any]:
        """The stack's state as `pulumi stack export` gives it."""
        file = self.folder / f"state-{stack}.json"
        said = self.engine.run(self.folder, "stack", "export", "--stack", stack, "--file", str(file))
        assert said.code == 0, said.text
        state: dict[str, Any] = json.loads(file.read_text())
        return state


def project(folder: Path, engine: Engine) -> Project:
    """Make the folder. Its project has a name of its own, so that stacks of other tests are others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAM:
        (folder / name).symlink_to(ROOT / name)
    name = re.sub(r"[^a-z0-9-]", "-", f"holdfast-{folder.name}".lower())
    write_project(folder, name=name, plugins={"providers": plugins(folder / "providers")})
    return Project(folder, engine)


def refusals(said: Said) -> set[str]:
    """The mandatory rules that refused something."""
    return set(re.findall(r"\[mandatory\].*  ([a-z0-9-]+)  \(", said.text))
