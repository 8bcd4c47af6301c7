"""`accept` that is told to end: a real process, real signals, and everything undone before it goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import sys, threading, time
from ops.acceptance import driver as drivers
from tests.unit.ops import test_accept_driver as lab
from tests.unit.ops.fake_cluster import FakeCluster
from ops.acceptance import plan as plans
from ops.acceptance.facts import faults_named

cluster = FakeCluster()
cluster.node("gpu-0")
found = plans.plan(faults_named(["drain"]), frozenset(), "job", "k3v9", lab.RUN, "claim", lab.GROUND)

def deed(one):
    lab.cordon(one)
    print("cordoned", flush=True)
    one.recorder.wait(lambda: None, "nothing that ever comes", 60)

made = drivers.Driver(
    api=cluster, acceptance="k3v9", stack="dev", environment="dev", rehearsal=True, job_sets=False,
    team=lab.TEAM, pool=lab.Pool(), base=lab.RUN, plan=plans.Plan(None, found.scenarios, ()), slots=1,
    limit_seconds=60, progress=lab.Quiet(), disturb=lambda _slug: deed,
)
facts = made.run()
cordoned = cluster.objects["/api/v1/nodes/gpu-0"]["spec"].get("unschedulable")
print("left" if cordoned else "undone", lab.left(cluster))
print(facts.problems[0], flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_ends_the_acceptance_after_all_is_undone(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "cordoned\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert out.splitlines() == ["undone []", "It was stopped by a signal."]
    assert process.returncode == 0
