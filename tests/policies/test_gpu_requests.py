"""GPU request = limit = a whole number above zero, for each container on its own."""

import pytest

RULE = "whole-gpus"
JOB = "kubernetes:batch/v1:Job"
MIG = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("limit", "request_"),
    [(1, 1), (1, None), ("1", 1), (2.0, "2"), ("2000m", "2"), ("8", "8"), ("1e0", 1)],
)
def test_equal_whole_numbers_pass(judge, build, limit, request_):
    verdict = judge.resource(JOB, build.job(build.amounts(limit, request_)))
    assert verdict.of(RULE) == [] and verdict.undecided(RULE) == []


@pytest.mark.parametrize("limit", [0.5, "1.5", "500m", "100m"])
def test_a_part_of_a_gpu_is_refused(judge, build, limit):
    (message,) = judge.resource(JOB, build.job(build.amounts(limit))).of(RULE)
    assert "GPUs are not divisible" in message and f"limits.nvidia.com/gpu is '{limit}'" in message


@pytest.mark.parametrize(("limit", "request_"), [(2, 1), ("1", "2"), (1, "1k")])
def test_unequal_request_and_limit_are_refused(judge, build, limit, request_):
    (message,) = judge.resource(JOB, build.job(build.amounts(limit, request_))).of(RULE)
    assert "they must be equal" in message


def test_a_request_without_a_limit_is_refused(judge, build):
    (message,) = judge.resource(JOB, build.job(build.amounts(None, 1))).of(RULE)
    assert "requests.nvidia.com/gpu is 1 but limits.nvidia.com/gpu is missing" in message


@pytest.mark.parametrize("limit", [0, "0", -1])
def test_zero_and_less_are_refused(judge, build, limit):
    (message,) = judge.resource(JOB, build.job(build.amounts(limit))).of(RULE)
    assert "remove the line, or ask for 1 or more" in message


@pytest.mark.parametrize("limit", ["one", True, {}, ["1"], "1 GPU", ""])
def test_what_is_no_quantity_is_refused(judge, build, limit):
    (message,) = judge.resource(JOB, build.job(build.amounts(limit))).of(RULE)
    assert "no quantity" in message


@pytest.mark.parametrize("name", [MIG, "nvidia.com/gpu.shared", "nvidia.com/mig-3g.40gb", "amd.com/gpu"])
def test_slices_and_shared_gpus_follow_the_same_rule(judge, build, name):
    assert judge.resource(JOB, build.job(build.amounts(1, 1, name))).of(RULE) == []
    assert len(judge.resource(JOB, build.job(build.amounts(2, 1, name))).of(RULE)) == 1


def test_each_container_is_judged_on_its_own(judge, build):
    one, two = build.amounts(1, 1), build.amounts("500m")
    job = build.job(one, two, initContainers=[build.amounts(None, 2)])
    assert len(judge.resource(JOB, job).of(RULE)) == 2


def test_gpus_of_the_pod_as_a_whole_are_refused(judge, build):
    job = build.job(build.amounts(1), resources={"limits": {"nvidia.com/gpu": 1}})
    (message,) = judge.resource(JOB, job).of(RULE)
    assert "resources of the whole Pod" in message


def test_cpu_may_differ_between_request_and_limit(judge, build):
    assert judge.resource(JOB, build.job(build.amounts("8", "500m", "cpu"))).of(RULE) == []


@pytest.mark.parametrize("resources", [None, [], "none", {"limits": None}, {"limits": [1]}, {"limits": {}}])
def test_resources_of_the_wrong_shape_break_nothing(judge, build, resources):
    verdict = judge.resource(JOB, build.job({"name": "a", "image": "x", "resources": resources}))
    assert verdict.of(RULE) == []


def test_an_unknown_limit_is_said(judge, build):
    verdict = judge.resource(JOB, build.job(build.amounts(judge.unknown, 1)))
    assert verdict.of(RULE) == []
    assert "resources.limits.nvidia.com/gpu" in verdict.undecided(RULE)[0]


def test_a_fraction_is_refused_beside_an_unknown_request(judge, build):
    verdict = judge.resource(JOB, build.job(build.amounts("500m", judge.unknown)))
    assert len(verdict.of(RULE)) == 1 and "500m" in verdict.of(RULE)[0]


def test_unknown_containers_are_said(judge):
    job = {"spec": {"template": {"spec": {"containers": judge.unknown_object}}}}
    verdict = judge.resource(JOB, job)
    assert verdict.violations == [] and "spec.template.spec.containers" in verdict.undecided(RULE)[0]
