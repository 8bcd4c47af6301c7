"""Programs that never saw our planner, in Python for the clouds and in YAML for Kubernetes, through the real engine and pack."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rehearsal.recording_providers import plugins
from tests.cli.engine import Engine, Said, write_project
from tests.cli.recorded import POLICIES, refusals

PROGRAMS = Path(__file__).with_name("programs")

# Program -> the rules that must refuse it, and words of the fix.
CLOUDS = {
    "eks_two_drivers": ({"node-profile-agreement"}, "driver.enabled=false"),
    "bottlerocket_two_plugins": ({"node-profile-agreement"}, "Bottlerocket"),
    "gke_label_with_managed_driver": ({"node-profile-agreement"}, "gke-no-default-nvidia-gpu-device-plugin"),
    "taint_that_nfd_does_not_tolerate": (
        {"pool-taint-tolerated"},
        "node-feature-discovery.worker.tolerations",
    ),
    "sound_eks": (set(), ""),
    "sound_gke": (set(), ""),
    "sound_bottlerocket": (set(), ""),
}
YAML = {
    "job_whose_preemption_counts": ({"preemption-not-counted"}, "DisruptionTarget"),
    "checkpoints_in_an_empty_dir": ({"checkpoint-volume"}, "emptyDir"),
    "second_device_plugin": (
        {"node-profile-agreement"},
        "Bottlerocket brings driver, toolkit and device plugin",
    ),
    "sound_job": (set(), ""),
    "sound_device_plugin": (set(), ""),
}


def judge(said: Said, rules: set[str], words: str) -> None:
    assert "Traceback" not in said.text
    assert refusals(said) == rules, said.text
    if rules:
        assert said.code != 0 and words in said.text, said.text
    else:
        assert said.code == 0 and "[mandatory]" not in said.text and "[advisory]" not in said.text, said.text


@pytest.mark.parametrize("program", CLOUDS)
def test_a_program_for_a_cloud_is_judged_by_its_resources(
    program: str, engine: Engine, tmp_path: Path
) -> None:
    shutil.copy(PROGRAMS / "clouds" / "parts.py", tmp_path / "parts.py")
    shutil.copy(PROGRAMS / "clouds" / f"{program}.py", tmp_path / "__main__.py")
    write_project(tmp_path, {"name": "somebody"}, plugins={"providers": plugins(tmp_path / "providers")})
    stack = program.replace("_", "-")
    engine.run(tmp_path, "stack", "init", stack)
    judge(engine.run(tmp_path, "preview", "--stack", stack, *POLICIES), *CLOUDS[program])


@pytest.mark.parametrize("program", YAML)
def test_a_program_in_yaml_is_judged_as_one_in_python(
    program: str, yaml_engine: Engine, tmp_path: Path
) -> None:
    shutil.copy(PROGRAMS / "yaml" / f"{program}.yaml", tmp_path / "Pulumi.yaml")
    (tmp_path / "rendered").mkdir()
    stack = program.replace("_", "-")
    yaml_engine.run(tmp_path, "stack", "init", stack)
    judge(yaml_engine.run(tmp_path, "preview", "--stack", stack, *POLICIES), *YAML[program])


def test_every_program_of_the_folders_is_tried() -> None:
    assert {path.stem for path in (PROGRAMS / "clouds").glob("*.py")} - {"parts"} == set(CLOUDS)
    assert {path.stem for path in (PROGRAMS / "yaml").glob("*.yaml")} == set(YAML)
