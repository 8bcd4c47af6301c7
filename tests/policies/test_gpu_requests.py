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


@pytest.mark.parametrize("limit", [-1, "-2"])
def test_less_than_zero_is_refused(judge, build, limit):
    (message,) = judge.resource(JOB, build.job(build.amounts(limit))).of(RULE)
    assert "remove the line, or ask for 1 or more" in message


@pytest.mark.parametrize(("limit", "request_"), [(0, None), ("0", "0"), (0, 0.0)])
def test_zero_asks_for_nothing(judge, build, limit, request_):
    # Templates write it for Pods without a GPU, and Kubernetes takes it: no digest, no GPU node.
    container = {**build.amounts(limit, request_), "image": "docker.io/example/web:v1"}
    assert judge.resource(JOB, build.job(container)).violations == []
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    ((rule, _),) = judge.resource(JOB, build.job(container, tolerations=[toleration])).violations
    assert rule == "gpu-toleration-needs-gpu"


def test_zero_beside_a_request_is_unequal(judge, build):
    assert len(judge.resource(JOB, build.job(build.amounts(0, 1))).of(RULE)) == 1


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


SHORT = [
    (
        "trainer.kubeflow.org/v1alpha1:TrainJob",
        lambda inner: {"spec": {"trainer": inner}},
        "resourcesPerNode",
    ),
    (
        "serving.kserve.io/v1beta1:InferenceService",
        lambda inner: {"spec": {"predictor": {"model": inner}}},
        "resources",
    ),
]


@pytest.mark.parametrize(("kind", "wrap", "key"), SHORT)
def test_gpus_of_a_custom_resource_without_containers_are_judged(judge, kind, wrap, key):
    limits = {"limits": {"nvidia.com/gpu": 0.5}}
    verdict = judge.resource(f"kubernetes:{kind}", wrap({key: limits, "image": "docker.io/example/a:v1"}))
    assert {rule for rule, _ in verdict.violations} == {RULE, "image-by-digest"}
    # Without an image of its own the operator's configuration names it.
    verdict = judge.resource(f"kubernetes:{kind}", wrap({key: {"limits": {"nvidia.com/gpu": 2}}}))
    assert verdict.violations == [] and verdict.advisories == []


def test_a_patch_is_judged_by_what_it_says(judge, build):
    patch = build.job({"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": "500m"}}})
    ((rule, _),) = judge.resource("kubernetes:batch/v1:JobPatch", patch).violations
    assert rule == RULE
