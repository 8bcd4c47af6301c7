"""The operator is ready when its GPUs can be had, whatever its own status says."""

from __future__ import annotations

import time
from typing import Any

from kubernetes import client

from rehearsal.api import api_client


def without_the_pool_s_toleration(config: dict[str, Any]) -> None:
    operator = config["gpuOperator"]
    only_defaults = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    operator["extraValues"] = {**operator.get("extraValues", {}), "daemonsets": {"tolerations": only_defaults}}


def test_a_taint_that_the_operands_do_not_tolerate_is_named_within_a_minute(project):
    project.up()
    started = time.monotonic()
    said = project.up(without_the_pool_s_toleration, code=None)
    assert time.monotonic() - started < 60 + 30, "the engine's own work included"
    assert "error: update failed" in said
    assert "dedicated=gpu:NoSchedule" in said
    assert "nvidia-device-plugin-daemonset" in said
    assert "daemonsets.tolerations" in said
    status = client.CustomObjectsApi(api_client()).get_cluster_custom_object(
        "nvidia.com", "v1", "clusterpolicies", "cluster-policy"
    )["status"]
    assert status["state"] == "ready", "the chart's own status would have been believed"
