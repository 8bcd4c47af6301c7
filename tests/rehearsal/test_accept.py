"""An acceptance on the real cluster: real faults, evidence that rechecks, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from rehearsal.provisioner import volumes_dir
from tests.rehearsal.helpers import NAMESPACE

# Those that nothing else in this tier does; the others disturb a run from outside, as test_recovery.py does.
FAULTS = "kill-during-save,corrupted-checkpoint,two-finishers,volume-full"


@pytest.fixture(scope="module")
def accepted(holdfast, tmp_path_factory):
    holdfast("up")  # to its end: one fault needs both GPUs
    folder = tmp_path_factory.mktemp("acceptance")
    done = holdfast("accept", "--fault", FAULTS, "--output", str(folder), "--json", code=None)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, json.loads(done.stdout)


def test_the_faults_pass_with_every_assertion_shown(accepted):
    _, verdict = accepted
    assert verdict["outcome"] == "passed"
    found = {scenario["fault"]: scenario for scenario in verdict["scenarios"]}
    assert sorted(found) == sorted(FAULTS.split(","))
    for scenario in found.values():
        assert scenario["assertions"]
        assert {each["holds"] for each in scenario["assertions"]} == {"yes"}, scenario


def test_the_evidence_rechecks_and_an_edit_is_found(accepted, holdfast, tmp_path):
    folder, _ = accepted
    holdfast("accept", "--verify", str(folder / "evidence.json"))
    edited = tmp_path / "evidence.json"
    edited.write_text((folder / "evidence.json").read_text().replace("two-finishers", "two-finishes", 1))
    holdfast("accept", "--verify", str(edited), code=1)


def test_ci_gets_one_test_per_fault_and_one_for_the_reference(accepted):
    folder, _ = accepted
    names = [case.get("name", "") for case in ElementTree.parse(folder / "junit.xml").getroot().iter("testcase")]
    assert len(names) == len(FAULTS.split(",")) + 1
    assert all(any(fault in name for name in names) for fault in [*FAULTS.split(","), "reference"])


def test_an_acceptance_leaves_nothing_behind(accepted, kubectl):
    left = kubectl("get", "jobs,jobsets,pods,pvc", "-A", "-l", "holdfast.dev/acceptance", "-o", "name")
    assert left.strip() == ""
    assert "SchedulingDisabled" not in kubectl("get", "nodes")
    assert list((volumes_dir() / NAMESPACE / "training-checkpoints").glob("accept-*")) == []
    mounts = subprocess.run(["findmnt", "-rno", "SOURCE"], capture_output=True, text=True).stdout
    assert "holdfast-bounded" not in mounts
