"""What a sound configuration becomes, and how problems are collected and shown."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml

from components.settings.loader import load_settings
from components.settings.node_pool import Taint
from components.settings.problems import SettingsError
from components.settings.stack import SETTING_KEYS

Problems = Callable[..., list[str]]
IMAGE = "docker.io/holdfast/trainer@sha256:" + "b" * 64


@pytest.fixture
def dev(checkout: Path) -> dict[str, Any]:
    """The values of Pulumi.dev.yaml as the program gets them."""
    config = yaml.safe_load((checkout / "Pulumi.dev.yaml").read_text(encoding="utf-8"))["config"]
    return {key.removeprefix("holdfast:"): value for key, value in config.items()}


def test_the_sound_configuration_has_no_problem(sound: dict[str, Any], problems_of: Problems) -> None:
    assert problems_of(sound) == []


def test_the_dev_environment_loads_with_the_variables_of_the_rehearsal_cluster(dev: dict[str, Any]) -> None:
    environ = {
        "HOLDFAST_KUBECONFIG": "/state/kubeconfig",
        "HOLDFAST_TRAINER_IMAGE": IMAGE,
        "HOLDFAST_OPERATOR_IMAGE": IMAGE,
        "HOLDFAST_JOBSET_CHART": "/cache/jobset-chart",
        "HOLDFAST_JOBSET_DIGEST": "c" * 64,
    }
    settings = load_settings(dev, environ)
    assert settings.cluster.kubeconfig == "/state/kubeconfig"
    assert settings.runs[0].image == IMAGE
    assert settings.cluster.cluster_identifier == "holdfast-rehearsal"
    assert settings.gpu_operator.chart.chart == "./rehearsal/charts/gpu-operator-rehearsal"
    assert settings.gpu_operator.chart.repository_url is None
    assert settings.job_set.chart.chart == "/cache/jobset-chart"


def test_the_dev_environment_without_its_variables_says_how_to_get_them(
    dev: dict[str, Any], problems_of: Problems
) -> None:
    fix = 'Fix: run eval "$(./holdfast env)" in this shell, or write the value itself.'
    assert problems_of(dev) == [
        (
            "holdfast:cluster.kubeconfig\n    The environment variable HOLDFAST_KUBECONFIG is not set.\n   "
            f" {fix}"
        ),
        (
            "holdfast:gpuOperator.extraValues.rehearsal.image\n    The environment variable"
            f" HOLDFAST_OPERATOR_IMAGE is not set.\n    {fix}"
        ),
        f"holdfast:jobSet.chart.path\n    The environment variable HOLDFAST_JOBSET_CHART is not set.\n    {fix}",
        (
            "holdfast:jobSet.extraValues.image.tag\n    The environment variable HOLDFAST_JOBSET_DIGEST is"
            f" not set.\n    {fix}"
        ),
        f"holdfast:runs[0].image\n    The environment variable HOLDFAST_TRAINER_IMAGE is not set.\n    {fix}",
    ]


def test_no_digest_no_absolute_path_and_no_salt_is_in_the_tracked_dev_file(checkout: Path) -> None:
    text = (checkout / "Pulumi.dev.yaml").read_text(encoding="utf-8")
    assert "sha256:" not in text
    assert "encryptionsalt" not in text
    assert not any(str(value).startswith("/") for value in _leaves(yaml.safe_load(text)))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def test_the_defaults_are_the_numbers_of_the_training_contract(sound: dict[str, Any]) -> None:
    settings = load_settings(sound, {})
    run, team, pool = settings.runs[0], settings.teams[0], settings.node_pools[0]
    assert (run.requests.cpu, run.requests.memory, run.gpus) == ("4", "16Gi", 1)
    assert (run.limits.cpu, run.limits.memory, run.shared_memory) == ("8", "32Gi", "2Gi")
    assert (run.backoff_limit, run.deadline_seconds, run.keep_finished_seconds, run.grace_seconds) == (
        2,
        14_400,
        86_400,
        120,
    )
    assert team.hard_quota == {
        "requests.nvidia.com/gpu": "2",
        "requests.cpu": "16",
        "requests.memory": "64Gi",
        "limits.cpu": "32",
        "limits.memory": "128Gi",
        "pods": "10",
    }
    storage = team.checkpoint_storage
    assert (storage.size, storage.access_mode, storage.claim_name) == (
        "100Gi",
        "ReadWriteMany",
        "training-checkpoints",
    )
    assert pool.labels == {"pool": "gpu"}
    assert pool.taint == Taint(key="dedicated", value="gpu", effect="NoSchedule")
    assert settings.gpu_operator.timeout_minutes == 20
    assert settings.gpu_operator.chart.pinned_version == "v26.7.0"
    assert settings.gpu_operator.chart.repository_url == "https://helm.ngc.nvidia.com/nvidia"


def test_a_quota_in_the_configuration_changes_the_default_key_by_key(sound: dict[str, Any]) -> None:
    sound["teams"][0]["quota"] = {"requests.nvidia.com/gpu": 8, "requests.memory": "2048Gi"}
    quota = load_settings(sound, {}).teams[0].hard_quota
    assert quota["requests.nvidia.com/gpu"] == "8"
    assert quota["requests.memory"] == "2Ti"
    assert quota["pods"] == "10"


@pytest.mark.parametrize(
    ("key", "amount"),
    [
        ("hugepages-2Mi", "1Gi"),
        ("requests.hugepages-1Gi", "4Gi"),
        ("count/jobs.batch", 20),
        ("requests.nvidia.com/mig-1g.10gb", 4),
        ("gpu.nvidia.com.deviceclass.resource.k8s.io/devices", 2),
        ("shared.storageclass.storage.k8s.io/requests.storage", "1Ti"),
        ("requests.ephemeral-storage", "1.5Gi"),
    ],
)
def test_every_kind_of_quota_key_is_taken(
    key: str, amount: Any, sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["teams"][0]["quota"] = {key: amount}
    assert problems_of(sound) == []


def test_gpus_of_the_limits_alone_are_the_requests_too(sound: dict[str, Any]) -> None:
    sound["runs"][0]["limits"] = {"gpus": 2}
    assert load_settings(sound, {}).runs[0].gpus == 2


def test_settings_can_not_be_changed_after_loading(sound: dict[str, Any]) -> None:
    settings = load_settings(sound, {})
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        settings.runs[0].attempt = 2  # type: ignore[misc]


def test_loading_does_not_change_the_values_that_it_was_given(sound: dict[str, Any]) -> None:
    sound["runs"][0]["image"] = "${IMAGE}"
    before = copy.deepcopy(sound)
    load_settings(sound, {"IMAGE": IMAGE})
    assert sound == before


def test_every_key_of_the_stack_has_a_kind() -> None:
    assert dict(SETTING_KEYS) == {
        "environment": "text",
        "cluster": "object",
        "nodePools": "object",
        "gpuOperator": "object",
        "jobSet": "object",
        "teams": "object",
        "runs": "object",
    }


def test_all_problems_are_told_at_once_in_the_order_of_the_configuration(
    sound: dict[str, Any],
) -> None:
    del sound["cluster"]["context"]
    sound["kafka"] = True
    sound["environment"] = "Dev"
    sound["gpuOperator"] = {"extraValues": {"driver": {"enabled": True}}}
    sound["runs"][0]["image"] = "trainer:1"
    sound["runs"][0]["cancelled"] = "no"
    with pytest.raises(SettingsError) as caught:
        load_settings(sound, {})
    assert (
        str(caught.value)
        == """\
The stack's configuration has 6 problems:

  holdfast:environment = "Dev"
      It is not a Kubernetes name: lower-case letters, digits and '-', beginning and ending with a letter or digit.
      Fix: write 'dev'.

  holdfast:cluster.context
      It is missing.
      Fix: add context: the context to deploy to; `kubectl config get-contexts` lists them.

  holdfast:gpuOperator.extraValues.driver.enabled = true
      The driver would have two owners on pool "gpu" (profile self-managed-driver-toolkit): the host and the GPU Operator.
      Fix: remove driver.enabled from extraValues, or give the pool a profile whose driver is the GPU Operator's, if that is what its nodes are: self-managed-bare.

  holdfast:runs[0].image = "trainer:1"
      It has the tag '1', and a tag can move to another image between two attempts of one run.
      Fix: write trainer@sha256:<64 hex digits>; `crane digest trainer:1` or `docker buildx imagetools inspect trainer:1` prints the digest.

  holdfast:runs[0].cancelled = "no"
      It is text, and true or false is needed.
      Fix: write false, without quotes.

  holdfast:kafka
      There is no such setting, so it would have no effect.
      Fix: remove it; the settings are holdfast:environment, holdfast:cluster, holdfast:nodePools, holdfast:gpuOperator, holdfast:jobSet, holdfast:teams, holdfast:runs."""  # noqa: E501
    )


def test_an_empty_configuration_names_what_is_required(problems_of: Problems) -> None:
    assert [text.splitlines()[0] for text in problems_of({})] == [
        "holdfast:environment",
        "holdfast:cluster",
        "holdfast:nodePools",
    ]


def test_a_team_with_a_problem_is_no_second_problem_for_its_runs(
    sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["teams"][0]["group"] = ""
    assert [text.splitlines()[0] for text in problems_of(sound)] == ['holdfast:teams[0].group = ""']


def test_a_retried_and_a_cancelled_run_are_sound(sound: dict[str, Any]) -> None:
    sound["runs"][0]["attempt"] = 3
    sound["runs"][0]["cancelled"] = True
    run = load_settings(sound, {}).runs[0]
    assert run.job_name == "training-run-001-r3"
    assert run.cancelled


def test_the_longest_run_id_still_gives_a_job_name_of_63_characters(sound: dict[str, Any]) -> None:
    sound["runs"][0].update(id="r" * 48, attempt=9999)
    assert len(load_settings(sound, {}).runs[0].job_name) == 63


def test_a_cancelled_run_may_be_larger_than_the_quota(sound: dict[str, Any], problems_of: Problems) -> None:
    sound["runs"][0].update(requests={"memory": "96Gi"}, limits={"memory": "96Gi"}, cancelled=True)
    assert problems_of(sound) == []


def test_a_reference_may_stand_inside_a_longer_text(sound: dict[str, Any]) -> None:
    sound["runs"][0]["args"] = [
        "/app/train",
        "--data=/data/${DATA_SET}/v1",
        "--price=$${X}",
        "$(HOLDFAST_RUN_ID)",
    ]
    args = load_settings(sound, {"DATA_SET": "digits"}).runs[0].program_args
    assert args == ("/app/train", "--data=/data/digits/v1", "--price=${X}", "$(HOLDFAST_RUN_ID)")


def test_a_reference_to_an_empty_variable_is_refused_as_not_set(
    sound: dict[str, Any], problems_of: Problems
) -> None:
    sound["cluster"]["context"] = "${CONTEXT}"
    assert problems_of(sound, {"CONTEXT": ""}) == [
        "holdfast:cluster.context\n    The environment variable CONTEXT is not set.\n"
        "    Fix: export CONTEXT, or write the value itself."
    ]


def test_a_tilde_in_the_kubeconfig_is_the_home_of_the_person(sound: dict[str, Any]) -> None:
    sound["cluster"]["kubeconfig"] = "~/.kube/lab"
    assert load_settings(sound, {"HOME": "/home/ada"}).cluster.kubeconfig == "/home/ada/.kube/lab"


def test_a_volume_below_tmp_is_allowed_when_it_is_said(sound: dict[str, Any], problems_of: Problems) -> None:
    volume = {
        "name": "cache",
        "mountPath": "/tmp/cache",
        "claim": "cache",
        "readOnly": False,
        "belowReserved": True,
    }
    sound["runs"][0]["volumes"] = [volume]
    assert problems_of(sound) == []


@pytest.mark.parametrize(
    "image",
    [
        f"trainer@{IMAGE.split('@')[1]}",
        f"docker.io/acme/trainer:1.2@{IMAGE.split('@')[1]}",
        f"registry.example.com:5000/a/b_c/d-e.f@{IMAGE.split('@')[1]}",
    ],
    ids=["without a registry", "with a tag beside the digest", "with a port and folders"],
)
def test_an_image_by_digest_is_taken(image: str, sound: dict[str, Any]) -> None:
    sound["runs"][0]["image"] = image
    assert load_settings(sound, {}).runs[0].image == image


@pytest.mark.parametrize(
    ("written", "meant"),
    [(4, "4"), (0.5, "500m"), ("2000m", "2"), ("1.5", "1500m")],
    ids=["a whole number", "a fraction", "thousandths", "a fraction in quotes"],
)
def test_cpu_may_be_written_as(written: Any, meant: str, sound: dict[str, Any]) -> None:
    sound["runs"][0]["requests"]["cpu"] = written
    assert load_settings(sound, {}).runs[0].requests.cpu == meant


def test_sizes_in_powers_of_a_thousand_are_taken_too(sound: dict[str, Any]) -> None:
    sound["teams"][0]["checkpointStorage"]["size"] = "100G"
    assert load_settings(sound, {}).teams[0].checkpoint_storage.size == "100G"
