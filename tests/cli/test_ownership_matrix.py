"""Every row of the ownership table through the real engine: our program, our pack, recording providers.

Supported rows must preview with the table's values on nodes of that row; rows that can not work must be refused by the planner, and by
the pack where somebody writes them by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.recording_providers import plugins
from tests.cli.conftest import MATRIX
from tests.cli.engine import ROOT, Engine, write_project
from tests.cli.recorded import COMMON, POLICIES, Project, Turn, project, refusals

GOLDEN: dict[str, Any] = yaml.safe_load(
    (ROOT / "tests" / "unit" / "planning" / "data" / "ownership-golden.yaml").read_text()
)
SUPPORTED = [name for name, row in GOLDEN.items() if "refused" not in row]
REFUSED = [name for name, row in GOLDEN.items() if "refused" in row]
LABEL = "gke-no-default-nvidia-gpu-device-plugin"


def _eks(ami_type: str, **more: Any) -> dict[str, Any]:
    eks = {
        "cluster": "production",
        "subnetIds": ["subnet-0a1b2c3d4e5f60718"],
        "nodeRoleArn": "arn:aws:iam::123456789012:role/gpu-nodes",
        "amiType": ami_type,
        "instanceTypes": ["g6.12xlarge"],
        "minSize": 0,
        "maxSize": 4,
        **more,
    }
    return {"name": "gpu", "kind": "eks", "eks": eks}


def _gke(image: str, driver: str, *, plugin: bool, installer: bool = False) -> dict[str, Any]:
    gke = {
        "cluster": "production",
        "location": "europe-west4",
        "project": "acme-training",
        "nodeLocations": ["europe-west4-a"],
        "serviceAccount": "gpu-nodes@acme-training.iam.gserviceaccount.com",
        "version": "1.34.1-gke.1201000",
        "machineType": "g2-standard-24",
        "accelerator": {"type": "nvidia-l4", "count": 2, "driver": driver},
        "imageType": image,
        "defaultDevicePlugin": plugin,
        "driverInstaller": installer,
        "minNodes": 0,
        "maxNodes": 4,
    }
    return {"name": "gpu", "kind": "gke", "gke": gke}


def _named(profile: str) -> dict[str, Any]:
    kind = "existing" if profile.startswith("aks") or profile == "gke-cos-operator-driver" else "self-managed"
    return {
        "name": "gpu",
        "kind": kind,
        "profile": profile,
        "selectNodes": {"matchLabels": {"rack": "a"}},
        "gpusPerNode": 2,
    }


# With an image of one's own nobody but the user data tells the kubelet what to register with.
USER_DATA = """#!/bin/bash
/etc/eks/bootstrap.sh production --kubelet-extra-args \\
  '--node-labels=pool=gpu --register-with-taints=dedicated=gpu:NoSchedule'
"""
PINNED = {"releaseVersion": "1.34.2-20261120"}
COS, UBUNTU, DISABLED = "COS_CONTAINERD", "UBUNTU_CONTAINERD", "INSTALLATION_DISABLED"
POOLS: Mapping[str, dict[str, Any]] = {
    "eks-al2023": _eks("AL2023_x86_64_NVIDIA", **PINNED),
    "eks-bottlerocket": _eks("BOTTLEROCKET_x86_64_NVIDIA", releaseVersion="1.52.0-a1b2c3d4"),
    "eks-ubuntu": _eks("CUSTOM", imageId="ami-0123456789abcdef0", userData=USER_DATA),
    "gke-cos-managed": _gke(COS, "LATEST", plugin=True),
    "gke-cos-installer": _gke(COS, DISABLED, plugin=False, installer=True),
    "gke-cos-label-and-managed": _gke(COS, "DEFAULT", plugin=False),
    "gke-cos-no-driver": _gke(COS, DISABLED, plugin=False),
    "gke-ubuntu": _gke(UBUNTU, DISABLED, plugin=False),
}


def _pool(name: str) -> dict[str, Any]:
    return POOLS.get(name) or _named(name)


@pytest.fixture(scope="module")
def planner_refuses(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Turn:
    """One preview of our own program with a pool of every row that can not work: all problems are told at once."""
    made = project(tmp_path_factory.mktemp("matrix") / "rows-refused", engine)
    # The run asks for the pool `gpu`; no node may be of two pools.
    pools = [
        {**_pool(row), "name": f"gpu-{number}" if number else "gpu"} for number, row in enumerate(REFUSED)
    ]
    for number, pool in enumerate(pools):
        if "selectNodes" in pool:
            pool["selectNodes"] = {"matchLabels": {"rack": f"rack-{number}"}}
    made.write("refused", {**COMMON, "holdfast:nodePools": pools})
    return made.run("preview", *POLICIES, stack="refused")


@pytest.fixture(scope="module")
def by_hand(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Turn:
    """One preview of a program that declares every row that can not work, each in a cluster of its own."""
    folder = tmp_path_factory.mktemp("by-hand")
    shutil.copy(Path(__file__).with_name("programs") / "rows" / "rejected.py", folder / "__main__.py")
    write_project(folder, {"name": "by-hand"}, plugins={"providers": plugins(folder / "providers")})
    turn = Project(folder, engine)
    turn.write("rows", {})
    return turn.run("preview", *POLICIES, stack="rows", REJECTED_ROWS=",".join(REFUSED))


def _pool_arguments(name: str, turn: Turn) -> bool:
    """The node group or node pool is of the row."""
    pool = POOLS.get(name, {})
    if "eks" in pool:
        (group,) = turn.of("NodeGroup").values()
        # EKS takes neither of an image of one's own: its launch template has the image.
        wanted = {} if pool["eks"]["amiType"] == "CUSTOM" else pool["eks"]
        return group.get("amiType") == wanted.get("amiType") and group.get("releaseVersion") == wanted.get(
            "releaseVersion"
        )
    if "gke" in pool:
        (made,) = turn.of("NodePool").values()
        config = made["nodeConfig"]
        driver = config["guestAccelerators"][0]["gpuDriverInstallationConfig"]["gpuDriverVersion"]
        labelled = config.get("labels", {}).get(LABEL) == "true"
        wanted = pool["gke"]
        return (config["imageType"], driver, labelled) == (
            wanted["imageType"],
            wanted["accelerator"]["driver"],
            not wanted["defaultDevicePlugin"],
        )
    return not turn.of("NodeGroup") and not turn.of("NodePool")


def _values(name: str, turn: Turn) -> bool:
    """The Release has the row's values, or there is none where the row wants none."""
    wanted = GOLDEN[name]["values"]
    releases = {key: inputs for key, inputs in turn.of("Release").items() if key == "gpu-operator"}
    if wanted is None:
        return not releases
    values = releases["gpu-operator"]["values"]
    return all(values.get(key) == value for key, value in wanted.items())


def _job(name: str, turn: Turn) -> bool:
    """The Job has the row's RuntimeClass."""
    (job,) = turn.of("Job").values()
    return job["spec"]["template"]["spec"].get("runtimeClassName") == GOLDEN[name]["runtimeClassName"]


SUPPORTED_CHECKS = {
    "preview": lambda name, turn: turn.said.code == 0 and "Traceback" not in turn.said.text,
    "pool": _pool_arguments,
    "values": _values,
    "job": _job,
    "pack": lambda name, turn: "[mandatory]" not in turn.said.text,
}


def _refused_by_planner(name: str, turn: Turn) -> bool:
    reason = " ".join(GOLDEN[name]["refused"].split()).partition(f'= "{name}" ')[2].partition(" Fix:")[0]
    said = " ".join(turn.said.text.split())
    return bool(reason) and turn.said.code != 0 and reason in said and "Traceback" not in said


def _refused_by_pack(name: str, turn: Turn) -> bool:
    return turn.said.code != 0 and f"node profile '{name}' can not work" in turn.said.text


def _table_row(name: str, checks: Mapping[str, bool]) -> str:
    marks = "  ".join(f"{check}: {'yes' if passed else 'NO'}" for check, passed in checks.items())
    return f"{name:<28} {marks}"


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_row_that_can_work_is_previewed_with_the_table_s_values(
    name: str, engine: Engine, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    made = project(tmp_path / f"row-{name}", engine)
    made.write(name, {**COMMON, "holdfast:nodePools": [_pool(name)]})
    turn = made.run("preview", *POLICIES, stack=name)
    checks = {check: judge(name, turn) for check, judge in SUPPORTED_CHECKS.items()}
    record_property(MATRIX, _table_row(name, checks))
    assert [check for check, passed in checks.items() if not passed] == [], turn.said.text


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_can_not_work_is_refused_by_planner_and_pack(
    name: str, planner_refuses: Turn, by_hand: Turn, record_property: Callable[[str, object], None]
) -> None:
    checks = {
        "planner refuses": _refused_by_planner(name, planner_refuses),
        "pack refuses": _refused_by_pack(name, by_hand),
    }
    record_property(MATRIX, _table_row(name, checks))
    assert checks["planner refuses"], planner_refuses.said.text
    assert checks["pack refuses"], by_hand.said.text
    assert "node-profile-agreement" in refusals(by_hand.said)
