"""Images of GPU workloads are pinned by digest."""

import pytest

RULE = "image-by-digest"
JOB = "kubernetes:batch/v1:Job"
DIGEST = "sha256:" + "cd" * 32


@pytest.mark.parametrize("image", [f"docker.io/example/trainer@{DIGEST}", f"registry:5000/a/b:v1@{DIGEST}"])
def test_a_digest_passes_with_or_without_a_tag(judge, build, image):
    assert judge.resource(JOB, build.job(build.gpu(image=image))).of(RULE) == []


def test_a_tag_instead_of_a_digest_is_refused(judge, build):
    (message,) = judge.resource(JOB, build.job(build.gpu(image="docker.io/example/trainer:v1"))).of(RULE)
    assert (
        "Job 'example', container 'trainer': image 'docker.io/example/trainer:v1' is not pinned by digest"
        in message
    )
    assert "Write the image as name@sha256:<digest>" in message


@pytest.mark.parametrize(
    "digest", ["sha256:abc", "sha256:" + "AB" * 32, "md5:" + "ab" * 16, "", DIGEST + "0"]
)
def test_a_malformed_digest_is_refused(judge, build, digest):
    (message,) = judge.resource(JOB, build.job(build.gpu(image=f"docker.io/example/trainer@{digest}"))).of(
        RULE
    )
    assert "malformed digest" in message


@pytest.mark.parametrize("image", [f"@{DIGEST}", f"a b@{DIGEST}"])
def test_a_digest_without_a_usable_name_is_refused(judge, build, image):
    (message,) = judge.resource(JOB, build.job(build.gpu(image=image))).of(RULE)
    assert "no usable name" in message


@pytest.mark.parametrize("image", [None, "", 7, ["x"]])
def test_a_missing_image_is_refused(judge, build, image):
    (message,) = judge.resource(JOB, build.job(build.gpu(image=image))).of(RULE)
    assert "image is missing" in message


def test_init_and_ephemeral_containers_and_sidecars_count(judge, build):
    tagged = {"name": "helper", "image": "busybox"}
    job = build.job(build.gpu(), initContainers=[tagged], ephemeralContainers=[tagged])
    assert len(judge.resource(JOB, job).of(RULE)) == 2
    assert len(judge.resource(JOB, build.job(build.gpu(), tagged)).of(RULE)) == 1


def test_an_image_volume_needs_a_digest_too(judge, build):
    volumes = [{"name": "weights", "image": {"reference": "docker.io/example/weights:v1"}}]
    (message,) = judge.resource(JOB, build.job(build.gpu(), volumes=volumes)).of(RULE)
    assert "image volume 'weights'" in message


def test_a_pod_without_gpus_may_use_a_tag(judge, build):
    assert judge.resource(JOB, build.job({"name": "web", "image": "nginx:1"})).of(RULE) == []


def test_a_pod_of_holdfast_needs_digests_without_gpus(judge, build):
    labels = {"labels": {"app.kubernetes.io/part-of": "holdfast"}}
    assert (
        len(judge.resource(JOB, build.job({"name": "a", "image": "nginx:1"}, metadata=labels)).of(RULE)) == 1
    )


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        ("core/v1:Pod", lambda pod: {"spec": pod}),
        ("apps/v1:Deployment", lambda pod: {"spec": {"template": {"spec": pod}}}),
        ("apps/v1:StatefulSet", lambda pod: {"spec": {"template": {"spec": pod}}}),
        ("apps/v1:DaemonSet", lambda pod: {"spec": {"template": {"spec": pod}}}),
        ("apps/v1:ReplicaSet", lambda pod: {"spec": {"template": {"spec": pod}}}),
        ("batch/v1:CronJob", lambda pod: {"spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
        ("core/v1:PodList", lambda pod: {"items": [{"spec": pod}]}),
        (
            "jobset.x-k8s.io/v1alpha2:JobSet",
            lambda pod: {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": pod}}}}]}},
        ),
        (
            "kubeflow.org/v1:PyTorchJob",
            lambda pod: {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}},
        ),
        ("ray.io/v1:RayCluster", lambda pod: {"spec": {"headGroupSpec": {"template": {"spec": pod}}}}),
    ],
)
def test_pods_are_found_in_every_kind(judge, build, kind, wrap):
    pod = {"containers": [build.gpu(image="docker.io/example/trainer:v1")]}
    assert len(judge.resource(f"kubernetes:{kind}", wrap(pod)).of(RULE)) == 1


def test_an_unknown_image_is_said_and_not_refused(judge, build):
    verdict = judge.resource(JOB, build.job(build.gpu(image=judge.unknown)))
    assert verdict.of(RULE) == []
    (sentence,) = verdict.undecided(RULE)
    assert (
        "not known yet: spec.template.spec.containers[0].image. The rule decides at `pulumi up`" in sentence
    )


def test_a_known_tag_is_refused_beside_an_unknown_image(judge, build):
    job = build.job(build.gpu(image=judge.unknown), {"name": "b", "image": "busybox"})
    verdict = judge.resource(JOB, job)
    assert len(verdict.of(RULE)) == 1 and len(verdict.undecided(RULE)) == 1


def test_unknown_resources_are_no_excuse_for_a_tag(judge, build):
    container = {"name": "a", "image": "busybox", "resources": {"limits": judge.unknown_object}}
    verdict = judge.resource(JOB, build.job(container))
    assert verdict.of(RULE) == []
    assert "resources.limits" in verdict.undecided(RULE)[0]


def test_a_digest_that_is_a_secret_is_read(judge, build):
    image = judge.secret("docker.io/example/trainer:v1")
    assert len(judge.resource(JOB, build.job(build.gpu(image=image))).of(RULE)) == 1


def test_an_unknown_pod_in_a_custom_resource_is_said(judge):
    verdict = judge.resource("kubernetes:kubeflow.org/v1:PyTorchJob", {"spec": judge.unknown_object})
    assert verdict.violations == [] and "spec" in verdict.undecided(RULE)[0]
