"""Every row of the ownership table, by golden values: what the operator, its readiness and a Job get from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.planning.operator_values import NFD_WORKER_TOLERATIONS, OPERAND_TOLERATIONS
from components.planning.ownership import LAYERS, profiles
from components.planning.stack import StackPlan
from components.settings.problems import SettingsError
from components.settings.stack import StackSettings

GOLDEN: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "data" / "ownership-golden.yaml").read_text(encoding="utf-8")
)
SUPPORTED = [name for name, row in GOLDEN.items() if "refused" not in row]
REFUSED = [name for name, row in GOLDEN.items() if "refused" in row]
POOL_TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}


def test_the_golden_values_are_of_exactly_the_rows_of_the_table() -> None:
    assert list(GOLDEN) == list(profiles())
    assert [name for name, row in profiles().items() if row.status == "reject"] == REFUSED


@pytest.mark.parametrize("name", SUPPORTED)
def test_from_a_row_follows_exactly_this(name: str, plan: Callable[..., StackPlan]) -> None:
    golden = GOLDEN[name]
    planned = plan(pool={"profile": name})
    assert {layer: planned.pools[0].ownership.owner(layer) for layer in LAYERS} == golden["owners"]
    (run,) = planned.runs
    pod = run.workload["spec"]["template"]["spec"]
    assert pod.get("runtimeClassName") == golden["runtimeClassName"]
    assert POOL_TOLERATION in pod["tolerations"]
    assert run.workload["spec"]["template"]["spec"]["nodeSelector"]["pool"] == "gpu"
    if golden["values"] is None:
        assert planned.operator is None
        return
    assert planned.operator is not None
    # Of the taint and of nothing else: the same on every row.
    tolerations = {
        "daemonsets": {"tolerations": [*OPERAND_TOLERATIONS, POOL_TOLERATION]},
        "node-feature-discovery": {"worker": {"tolerations": [*NFD_WORKER_TOLERATIONS, POOL_TOLERATION]}},
        "nfd": {"enabled": True},
        "dcgmExporter": {"serviceMonitor": {"enabled": False}},
    }
    assert planned.operator.values == {**golden["values"], **tolerations}
    assert planned.operator.expectation.runtime_classes == tuple(golden["createdRuntimeClasses"])
    assert set(planned.operator.expectation.absent_daemonsets) == set(golden["absentDaemonSets"])
    assert planned.operator.namespace_labels["holdfast.dev/node-profile"] == name


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_can_not_work_is_refused_with_exactly_this(
    name: str, stack: Callable[..., StackSettings]
) -> None:
    with pytest.raises(SettingsError) as caught:
        stack(pool={"profile": name})
    assert " ".join(str(caught.value).split()) == " ".join(GOLDEN[name]["refused"].split())


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_setting_of_a_row_has_a_reason_and_a_source(name: str) -> None:
    from ops.docs_ownership import SETTINGS, TABLE

    row = json.loads(TABLE.read_text(encoding="utf-8"))["profiles"][name]
    assert set(row["settings"]) == set(SETTINGS)
    assert all(item["why"] and item["sources"] for item in row["settings"].values())
