"""The pack as a whole: what it lists, that it serves on its own, and that no property can break it."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc
from rules.catalogue import POLICIES, entries

PACK = Path(__file__).resolve().parents[2] / "policies"
EXPECTED = {
    "single-gpu-stack-owner": ("stack", "critical"),
    "node-profile-agreement": ("stack", "critical"),
    "gpu-pool-image": ("stack", "high"),
    "driver-version-pinned": ("stack", "low"),
    "pool-taint-tolerated": ("stack", "high"),
    "critical-pods-admitted": ("stack", "medium"),
    "runtime-class-exists": ("stack", "high"),
    "device-plugin-or-dra": ("stack", "high"),
    "chart-pinned": ("resource", "medium"),
    "crds-follow-the-chart": ("stack", "medium"),
    "image-by-digest": ("resource", "high"),
    "whole-gpus": ("resource", "high"),
    "gpu-toleration-needs-gpu": ("resource", "medium"),
    "quota-keys-enforce": ("resource", "high"),
    "fits-its-quota": ("stack", "high"),
    "sharing-is-no-wall": ("stack", "high"),
    "checkpoint-volume": ("resource", "critical"),
    "checkpoint-claim": ("stack", "critical"),
    "one-writer": ("resource", "critical"),
    "preemption-not-counted": ("resource", "high"),
    "kills-count": ("resource", "medium"),
    "spot-without-delay": ("resource", "medium"),
    "finished-job-stays": ("resource", "medium"),
    "time-to-save": ("resource", "high"),
    "no-deadline-for-attempts": ("resource", "medium"),
    "signals-arrive": ("resource", "medium"),
    "queue-owns-suspend": ("resource", "medium"),
    "pod-security-admission": ("stack", "high"),
    "gpu-pod-privileges": ("resource", "high"),
    "gpu-pod-not-root": ("resource", "medium"),
    "gpus-by-request": ("resource", "high"),
    "checkpoints-private": ("stack", "critical"),
    "checkpoints-encrypted": ("resource", "high"),
    "no-forced-destroy": ("resource", "high"),
    "state-is-protected": ("resource", "medium"),
}
ADVISORY = {
    "driver-version-pinned",
    "critical-pods-admitted",
    "spot-without-delay",
    "no-deadline-for-attempts",
    "signals-arrive",
    "queue-owns-suspend",
    "gpu-pod-not-root",
    "state-is-protected",
}


def test_the_catalogue_lists_every_rule_in_words():
    found = entries()
    assert {e.name: (e.scope, e.severity) for e in found} == EXPECTED
    assert {e.name for e in found if e.advisory} == ADVISORY
    assert len(found) == len(POLICIES)
    for entry in found:
        assert entry.description.endswith(".") and entry.remediation.endswith("."), entry.name
        assert entry.url == f"docs/policies.md#{entry.name}"


def test_the_pack_imports_nothing_outside_its_folder():
    # A published pack has this folder only, and what the two packages of its requirements.txt stand on.
    allowed = set(sys.stdlib_module_names) | {"pulumi_policy", "rules", "pulumi", "grpc", "google"}
    for file in PACK.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, file


@pytest.fixture
def served():
    """The pack as the language host starts it: it prints its port and answers until SIGINT."""
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.policy", "127.0.0.1:1", str(PACK)],
        stdout=subprocess.PIPE,
        # A shell has SIGINT ignored in what it starts in the background, and so has all that this starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        port = int(server.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)


def test_the_served_pack_is_mandatory_but_for_its_advice_and_judges(served, build):
    info = served.GetAnalyzerInfo(empty_pb2.Empty())
    assert info.name == "holdfast"
    assert {p.name for p in info.policies} == set(EXPECTED)
    advisory = {p.name for p in info.policies if p.enforcementLevel == analyzer_pb2.ADVISORY}
    mandatory = {p.name for p in info.policies if p.enforcementLevel == analyzer_pb2.MANDATORY}
    assert (advisory, mandatory) == (ADVISORY, set(EXPECTED) - ADVISORY)
    properties = struct_pb2.Struct()
    properties.update(build.job(build.gpu(image="docker.io/example/trainer:v1")))
    request = analyzer_pb2.AnalyzeRequest(
        type="kubernetes:batch/v1:Job", name="run", urn="x", properties=properties
    )
    (diagnostic,) = served.Analyze(request).diagnostics
    assert diagnostic.policyName == "image-by-digest"
    assert diagnostic.enforcementLevel == analyzer_pb2.MANDATORY


# Keys that the rules read, so that nonsense reaches every branch.
KEYS = st.sampled_from(
    """
    spec template metadata labels namespace name containers initContainers image resources limits
    requests args env nvidia.com/gpu tolerations key operator value volumes volumeMounts mountPath
    subPath emptyDir hostPath path persistentVolumeClaim claimName accessModes volumeClaimTemplates
    chart values driver toolkit devicePlugin enabled nfd affinity nodeAffinity nodeSelector
    requiredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms matchExpressions ownerReferences
    kind items holdfast.dev/node-profile status __target podFailurePolicy rules action onPodConditions
    onExitCodes type replicatedJobs failurePolicy restartPolicy podReplacementPolicy backoffLimit
    onJobFailureReasons karpenter.sh/capacity-type amiType instanceTypes nodeConfig guestAccelerators
    gpuDriverInstallationConfig gpuDriverVersion imageType taints effect releaseVersion launchTemplate
    version nodePools agentPoolProfiles vmSize gpuProfile nodeTaints requirements nodeClassRef group
    amiSelectorTerms alias hard scopes scopeSelector resourceGroups coveredResources flavors
    nominalQuota requests.nvidia.com/gpu data any runtimeClassName handler parallelism completions
    replicas suspend ttlSecondsAfterFinished terminationGracePeriodSeconds activeDeadlineSeconds command
    securityContext privileged capabilities add drop hostPID acl policy Statement Principal encrypted
    forceDestroy public member members config map upgradeCRD daemonsets worker node-feature-discovery
    mig strategy devices exactly deviceClassName resourceClaims resourceClaimTemplateName gpuCluster
    pod-security.kubernetes.io/enforce annotations holdfast.dev/ownership-override clusterQueue skipCrds
    priorityClassName
    """.split()
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "gpu-operator", "/checkpoints", "--checkpoint-dir=/x", "rehearsal", "a:b@c", "1.5", "é\u0000"]
        + ["spot", "FailJob", "Ignore", "DisruptionTarget", "AL2023_x86_64_NVIDIA", "nvidia-l4", "restricted"]
    ),
    st.just("04da6b54-80e4-46f7-96ec-b56ff0331ba9"),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=25,
)
TYPES = st.sampled_from(
    [
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:PodList",
        "kubernetes:apps/v1:DaemonSet",
        "kubernetes:apps/v1:StatefulSet",
        "kubernetes:core/v1:ConfigMap",
        "kubernetes:core/v1:LimitRange",
        "kubernetes:core/v1:Namespace",
        "kubernetes:core/v1:PersistentVolume",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "kubernetes:core/v1:ResourceQuota",
        "kubernetes:helm.sh/v3:Release",
        "kubernetes:helm.sh/v4:Chart",
        "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet",
        "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
        "kubernetes:karpenter.sh/v1:NodePool",
        "kubernetes:kueue.x-k8s.io/v1beta1:ClusterQueue",
        "kubernetes:kueue.x-k8s.io/v1beta1:LocalQueue",
        "kubernetes:node.k8s.io/v1:RuntimeClass",
        "kubernetes:nvidia.com/v1:ClusterPolicy",
        "kubernetes:resource.k8s.io/v1:ResourceClaimTemplate",
        "kubernetes:storage.k8s.io/v1:StorageClass",
        "aws:ec2/launchTemplate:LaunchTemplate",
        "aws:efs/fileSystem:FileSystem",
        "aws:eks/nodeGroup:NodeGroup",
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketPolicy:BucketPolicy",
        "azure-native:containerservice:AgentPool",
        "azure-native:containerservice:ManagedCluster",
        "azure-native:storage:BlobContainer",
        "gcp:container/cluster:Cluster",
        "gcp:container/nodePool:NodePool",
        "gcp:storage/bucketIAMMember:BucketIAMMember",
    ]
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TYPES, st.dictionaries(KEYS, TREES, max_size=5)), min_size=1, max_size=4))
def test_no_properties_raise_out_of_the_pack(judge, example, resources):
    for type_, props in resources:
        judge.resource(type_, props)
    judge.stack(*(example(type_, props, f"r{n}") for n, (type_, props) in enumerate(resources)))
