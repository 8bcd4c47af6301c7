"""What the tests of this tier ask the cluster, and a copy of the program whose configuration they may change."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rehearsal.api import api_client, core
from tests.cli.engine import write_project

ROOT = Path(__file__).resolve().parent.parent.parent
NAMESPACE = "ml-batch"


def wait_for(what: str, check: Callable[[], Any], seconds: float = 90.0) -> Any:
    """The first truthy answer of `check`. Fails with `what` after the limit."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds:.0f} s this had not happened: {what}")
        time.sleep(0.3)
    return answer


class Project:
    """The program in a folder of its own, so that a test can change its configuration and leave the checkout alone.

    It works on the same stack of the same backend as the checkout's `dev`.
    """

    def __init__(self, folder: Path, shell: dict[str, str]) -> None:
        self.folder = folder
        self.shell = shell
        for name in ("components", "policies", "rehearsal"):
            (folder / name).symlink_to(ROOT / name)
        for name in ("Pulumi.dev.yaml", "__main__.py"):
            shutil.copy(ROOT / name, folder / name)
        write_project(folder)
        self.original = yaml.safe_load((folder / "Pulumi.dev.yaml").read_text())

    def configure(self, change: Callable[[dict[str, Any]], None] = lambda config: None) -> None:
        """Write the checkout's configuration with a change. Keys are without their namespace."""
        document = copy.deepcopy(self.original)
        config = {key.removeprefix("holdfast:"): value for key, value in document["config"].items()}
        change(config)
        document["config"] = {f"holdfast:{key}": value for key, value in config.items()}
        (self.folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    def pulumi(self, *arguments: str, code: int | None = 0) -> str:
        """Both outputs of a pulumi command on the stack. Asserts its exit code unless that is None."""
        command = ["pulumi", *arguments, "--stack=dev", "--non-interactive", "--color=never"]
        done = subprocess.run(command, cwd=self.folder, env=self.shell, capture_output=True, text=True)
        said = done.stdout + done.stderr
        if code is not None:
            assert done.returncode == code, said
        return said

    def up(self, change: Callable[[dict[str, Any]], None] = lambda config: None, code: int | None = 0) -> str:
        self.configure(change)
        return self.pulumi("up", "--yes", "--skip-preview", code=code)


def job(name: str) -> client.V1Job | None:
    found = client.BatchV1Api(api_client()).list_namespaced_job(NAMESPACE, field_selector=f"metadata.name={name}").items
    return found[0] if found else None


def is_complete(name: str) -> bool:
    found = job(name)
    conditions = found.status.conditions or [] if found else []
    assert not any(c.type == "Failed" and c.status == "True" for c in conditions), conditions
    return any(c.type == "Complete" and c.status == "True" for c in conditions)


def pods_of(job_name: str) -> list[client.V1Pod]:
    """The Pods of a Job, oldest first."""
    found = core().list_namespaced_pod(NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={job_name}").items
    return sorted(found, key=lambda pod: pod.metadata.creation_timestamp)


def events_of(pod: str) -> list[dict[str, Any]]:
    """What a Pod's program said, line by line of its log."""
    try:
        log = core().read_namespaced_pod_log(pod, NAMESPACE)
    except ApiException:
        return []
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def steps(events: list[dict[str, Any]], kind: str) -> list[int]:
    return [event["step"] for event in events if event.get("event") == kind]
