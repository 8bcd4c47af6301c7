"""The taint of GPU nodes is tolerated only together with a GPU request."""

import pytest

RULE = "gpu-toleration-needs-gpu"
JOB = "kubernetes:batch/v1:Job"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
PLAIN = {"name": "web", "image": "nginx"}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
GPU_TAINTS = [
    DEDICATED,
    {"key": "dedicated", "value": "gpu"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"},
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"operator": "Exists"},
    {"key": "", "operator": "Exists", "effect": "NoSchedule"},
]
OTHER_TAINTS = [
    {"key": "dedicated", "operator": "Equal", "value": "cpu"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"operator": "Equal"},
    {},
]


@pytest.mark.parametrize("toleration", GPU_TAINTS)
def test_tolerating_gpu_nodes_without_a_gpu_is_refused(judge, build, toleration):
    (message,) = judge.resource(DEPLOYMENT, build.job(PLAIN, tolerations=[toleration])).of(RULE)
    assert "none of its containers asks for a GPU" in message


@pytest.mark.parametrize("toleration", GPU_TAINTS)
def test_tolerating_gpu_nodes_with_a_gpu_passes(judge, build, toleration):
    assert judge.resource(JOB, build.job(build.gpu(), tolerations=[toleration])).of(RULE) == []


def test_a_gpu_in_an_init_container_counts(judge, build):
    job = build.job(PLAIN, initContainers=[build.gpu()], tolerations=[DEDICATED])
    assert judge.resource(JOB, job).of(RULE) == []


def test_a_mig_slice_or_a_resource_claim_counts(judge, build):
    sliced = build.amounts(1, 1, "nvidia.com/mig-1g.10gb")
    assert judge.resource(JOB, build.job(sliced, tolerations=[DEDICATED])).of(RULE) == []
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    assert (
        judge.resource(JOB, build.job(PLAIN, resourceClaims=claims, tolerations=[DEDICATED])).of(RULE) == []
    )


@pytest.mark.parametrize("toleration", OTHER_TAINTS)
def test_other_tolerations_are_free(judge, build, toleration):
    assert judge.resource(JOB, build.job(PLAIN, tolerations=[toleration])).of(RULE) == []


def test_daemonsets_are_exempt(judge, build):
    assert (
        judge.resource("kubernetes:apps/v1:DaemonSet", build.job(PLAIN, tolerations=[DEDICATED])).of(RULE)
        == []
    )


@pytest.mark.parametrize("namespace", ["kube-system", "gpu-operator"])
def test_system_namespaces_are_exempt(judge, build, namespace):
    job = build.job(PLAIN, metadata={"namespace": namespace}, tolerations=[DEDICATED])
    assert judge.resource(DEPLOYMENT, job).of(RULE) == []


@pytest.mark.parametrize(
    "pod",
    [
        {"priorityClassName": "system-cluster-critical"},
        {"priorityClassName": "system-node-critical"},
        {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}},
    ],
)
def test_what_the_cluster_needs_to_run_is_exempt_in_any_namespace(judge, build, pod):
    job = build.job(PLAIN, tolerations=[{"operator": "Exists"}], **pod)
    assert judge.resource(DEPLOYMENT, job).of(RULE) == []


def test_the_packs_configuration_exempts_namespaces(judge, build):
    job = build.job(PLAIN, metadata={"namespace": "network-plugin"}, tolerations=[DEDICATED])
    assert len(judge.resource(DEPLOYMENT, job).of(RULE)) == 1
    judge.configure(RULE, exemptNamespaces=["network-plugin"])
    assert judge.resource(DEPLOYMENT, job).of(RULE) == []


def test_pods_of_an_operator_are_exempt(judge, build):
    owner = {"ownerReferences": [{"kind": "ClusterPolicy", "name": "cluster-policy"}]}
    job = build.job(PLAIN, metadata=owner, tolerations=[DEDICATED])
    assert judge.resource(DEPLOYMENT, job).of(RULE) == []


@pytest.mark.parametrize("tolerations", [None, "all", {"key": "dedicated"}, [None], ["dedicated"]])
def test_tolerations_of_the_wrong_shape_break_nothing(judge, build, tolerations):
    assert judge.resource(DEPLOYMENT, build.job(PLAIN, tolerations=tolerations)).of(RULE) == []


def test_an_unknown_gpu_amount_is_a_gpu_request(judge, build):
    job = build.job(build.amounts(judge.unknown), tolerations=[DEDICATED])
    verdict = judge.resource(JOB, job)
    assert verdict.of(RULE) == [] and verdict.undecided(RULE) == []


def test_unknown_limits_are_no_proof_of_a_gpu(judge, build):
    container = {**PLAIN, "resources": {"limits": judge.unknown_object}}
    verdict = judge.resource(JOB, build.job(container, tolerations=[DEDICATED]))
    assert verdict.of(RULE) == []
    assert "containers[0].resources.limits" in verdict.undecided(RULE)[0]


def test_an_unknown_namespace_or_key_is_said(judge, build):
    job = build.job(PLAIN, metadata={"namespace": judge.unknown}, tolerations=[DEDICATED])
    assert "metadata.namespace" in judge.resource(DEPLOYMENT, job).undecided(RULE)[0]
    job = build.job(PLAIN, tolerations=[{"key": judge.unknown, "operator": "Exists"}])
    assert "tolerations[0].key" in judge.resource(DEPLOYMENT, job).undecided(RULE)[0]
