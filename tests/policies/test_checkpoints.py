"""Checkpoints are written to a volume that outlives the Pod and its node."""

import pytest
from rules.checkpoint_paths import is_checkpoint_option, paths_in_arguments

VOLUME = "checkpoint-volume"
CLAIM = "checkpoint-claim"
JOB = "kubernetes:batch/v1:Job"
PVC = "kubernetes:core/v1:PersistentVolumeClaim"
MOUNT = [{"name": "data", "mountPath": "/checkpoints"}]
ARGS = ["/app/train", "--resume", "--checkpoint-dir=/checkpoints/run-001"]


def by_claim(name="training-checkpoints"):
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def pvc(*modes, name="training-checkpoints", namespace="ml-batch"):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"accessModes": list(modes)}}


def test_a_claim_at_the_checkpoint_directory_passes(judge, build):
    job = build.job(build.gpu(args=ARGS, volumeMounts=MOUNT), volumes=by_claim())
    verdict = judge.resource(JOB, job)
    assert verdict.of(VOLUME) == [] and verdict.undecided(VOLUME) == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"emptyDir": {}}, "an emptyDir is deleted with the Pod"),
        ({"emptyDir": {"medium": "Memory"}}, "an emptyDir is deleted with the Pod"),
        ({"hostPath": {"path": "/data"}}, "a hostPath stays on one node"),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "an ephemeral volume is deleted with the Pod"),
        ({"gcePersistentDisk": {"pdName": "x"}}, "can be mounted on one node at a time"),
        ({"configMap": {"name": "x"}}, "read-only"),
    ],
)
def test_a_volume_that_dies_with_pod_or_node_is_refused(judge, build, source, why):
    job = build.job(build.gpu(args=ARGS, volumeMounts=MOUNT), volumes=[{"name": "data", **source}])
    (message,) = judge.resource(JOB, job).of(VOLUME)
    assert "checkpoints at /checkpoints/run-001 (--checkpoint-dir)" in message
    assert why in message and "ReadWriteMany" in message


@pytest.mark.parametrize(
    "source",
    [
        {"nfs": {"server": "x", "path": "/"}},
        {"csi": {"driver": "gcsfuse.csi.storage.gke.io"}},
        {"cephfs": {}},
    ],
)
def test_shared_file_systems_pass(judge, build, source):
    job = build.job(build.gpu(args=ARGS, volumeMounts=MOUNT), volumes=[{"name": "data", **source}])
    assert judge.resource(JOB, job).of(VOLUME) == []


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["--checkpoint-dir=/data/run"]},
        {"args": ["--checkpoint-dir", "/data/run"]},
        {"command": ["python", "train.py", "--output_dir", "/data/run"]},
        {"command": ["sh", "-c", "exec python train.py --ckpt_dir=/data/run --lr 1"]},
        {"args": ["trainer.checkpoint_dir=/data/run"]},
        {"env": [{"name": "HOLDFAST_CHECKPOINT_DIR", "value": "/data/run"}]},
        {"env": [{"name": "CKPT_PATH", "value": "/data/$(RUN)"}]},
    ],
)
def test_checkpoints_without_any_mount_are_refused(judge, build, container):
    (message,) = judge.resource(JOB, build.job(build.gpu(**container))).of(VOLUME)
    assert "no volume is mounted there, so they are lost with the container's own file system" in message


@pytest.mark.parametrize("path", ["/checkpoints", "/ckpt", "/workspace/checkpoints", "/mnt/Checkpoints"])
def test_a_mount_path_that_speaks_of_checkpoints_is_judged(judge, build, path):
    mounts = [{"name": "data", "mountPath": path}]
    job = build.job(build.gpu(volumeMounts=mounts), volumes=[{"name": "data", "emptyDir": {}}])
    assert len(judge.resource(JOB, job).of(VOLUME)) == 1


def test_a_sub_path_that_speaks_of_checkpoints_is_judged(judge, build):
    mounts = [{"name": "data", "mountPath": "/out", "subPath": "checkpoints/run-001"}]
    job = build.job(build.gpu(volumeMounts=mounts), volumes=[{"name": "data", "hostPath": {"path": "/x"}}])
    (message,) = judge.resource(JOB, job).of(VOLUME)
    assert "/out (subPath)" in message


def test_the_deepest_mount_above_the_directory_decides(judge, build):
    mounts = [{"name": "scratch", "mountPath": "/data"}, {"name": "data", "mountPath": "/data/out"}]
    volumes = [{"name": "scratch", "emptyDir": {}}, *by_claim()]
    job = build.job(build.gpu(args=["--output-dir=/data/out/a"], volumeMounts=mounts), volumes=volumes)
    assert judge.resource(JOB, job).of(VOLUME) == []
    job = build.job(build.gpu(args=["--output-dir=/data/outer"], volumeMounts=mounts), volumes=volumes)
    assert len(judge.resource(JOB, job).of(VOLUME)) == 1


def test_scratch_space_elsewhere_is_free(judge, build):
    mounts = [*MOUNT, {"name": "shm", "mountPath": "/dev/shm"}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes = [
        *by_claim(),
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    assert (
        judge.resource(JOB, build.job(build.gpu(args=ARGS, volumeMounts=mounts), volumes=volumes)).of(VOLUME)
        == []
    )


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["--load-checkpoint=/models/base"]},
        {"args": ["--resume_from_checkpoint", "/models/base"]},
        {"args": ["--checkpoint-path=/models/base.safetensors"]},
        {"args": ["--checkpoint-dir=s3://bucket/run"]},
        {"args": ["--save-checkpoints=true", "--data=/data"]},
        {"env": [{"name": "PRETRAINED_CHECKPOINT_DIR", "value": "/models"}]},
    ],
)
def test_what_only_reads_or_is_no_directory_is_free(judge, build, container):
    assert judge.resource(JOB, build.job(build.gpu(**container))).of(VOLUME) == []


def test_weights_mounted_for_reading_are_free(judge, build):
    mounts = [{"name": "data", "mountPath": "/pretrained-checkpoints", "readOnly": True}]
    job = build.job(build.gpu(volumeMounts=mounts), volumes=[{"name": "data", "emptyDir": {}}])
    assert judge.resource(JOB, job).of(VOLUME) == []


def test_a_pod_without_gpus_is_free(judge, build):
    job = build.job({"name": "a", "image": "x", "args": ARGS, "env": [{"name": "X", "value": judge.unknown}]})
    verdict = judge.resource(JOB, job)
    assert verdict.of(VOLUME) == [] and verdict.undecided(VOLUME) == []


def test_a_claim_template_of_a_stateful_set_is_judged(judge, build):
    def with_modes(*modes):
        template = {"metadata": {"name": "data"}, "spec": {"accessModes": list(modes)}}
        job = build.job(build.gpu(args=ARGS, volumeMounts=MOUNT))
        job["spec"]["volumeClaimTemplates"] = [template]
        return judge.resource("kubernetes:apps/v1:StatefulSet", job).of(VOLUME)

    assert with_modes("ReadWriteMany") == []
    assert "ReadWriteOnce" in with_modes("ReadWriteOnce")[0]


def stack(judge, example, build, claim_props, claim_name="training-checkpoints", namespace="ml-batch"):
    job = build.job(
        build.gpu(args=ARGS, volumeMounts=MOUNT),
        metadata={"namespace": namespace},
        volumes=by_claim(claim_name),
    )
    return judge.stack(example(PVC, claim_props, "claim"), example(JOB, job, "run"))


def test_a_shared_claim_passes(judge, example, build):
    verdict = stack(judge, example, build, pvc("ReadWriteMany"))
    assert verdict.of(CLAIM) == [] and verdict.undecided(CLAIM) == []
    assert stack(judge, example, build, pvc("ReadWriteOnce", "ReadWriteMany")).of(CLAIM) == []


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadOnlyMany"], []])
def test_a_claim_that_one_node_can_mount_is_refused(judge, example, build, modes):
    (message,) = stack(judge, example, build, pvc(*modes)).of(CLAIM)
    assert "claim 'training-checkpoints' can not hold them" in message
    assert "Set accessModes to [ReadWriteMany]" in message


def test_a_claim_of_another_namespace_or_cluster_is_another_claim(judge, example, build):
    assert stack(judge, example, build, pvc("ReadWriteOnce", namespace="other")).of(CLAIM) == []
    job = build.job(
        build.gpu(args=ARGS, volumeMounts=MOUNT), metadata={"namespace": "ml-batch"}, volumes=by_claim()
    )
    verdict = judge.stack(
        example(PVC, pvc("ReadWriteOnce"), "claim", provider="east"),
        example(JOB, job, "run", provider="west"),
    )
    assert verdict.of(CLAIM) == []


def test_two_providers_of_one_context_are_one_cluster(judge, example, build):
    where = {"kubeconfig": "/etc/kubeconfig", "context": "prod"}
    job = build.job(
        build.gpu(args=ARGS, volumeMounts=MOUNT), metadata={"namespace": "ml-batch"}, volumes=by_claim()
    )
    verdict = judge.stack(
        example(PVC, pvc("ReadWriteOnce"), "claim", provider="a", provider_props=where),
        example(JOB, job, "run", provider="b", provider_props=where),
    )
    assert len(verdict.of(CLAIM)) == 1


def test_no_namespace_is_the_default_one(judge, example, build):
    job = build.job(build.gpu(args=ARGS, volumeMounts=MOUNT), volumes=by_claim())
    claim = example(PVC, pvc("ReadWriteOnce", namespace="default"), "claim")
    assert len(judge.stack(claim, example(JOB, job, "run")).of(CLAIM)) == 1


@pytest.mark.parametrize("where", ["modes", "claim", "name"])
def test_an_unknown_claim_is_said(judge, example, build, where):
    props, name = pvc("ReadWriteOnce"), "training-checkpoints"
    if where == "modes":
        props["spec"]["accessModes"] = judge.unknown_object
    elif where == "claim":
        name = judge.unknown
    else:
        props["metadata"]["name"] = judge.unknown
    verdict = stack(judge, example, build, props, name)
    assert verdict.of(CLAIM) == [] and len(verdict.undecided(CLAIM)) == 1


def test_an_unknown_argument_is_said_and_a_known_emptydir_refused(judge, build):
    args = ["/app/train", judge.unknown]
    job = build.job(build.gpu(args=args, volumeMounts=MOUNT), volumes=[{"name": "data", "emptyDir": {}}])
    verdict = judge.resource(JOB, job)
    assert len(verdict.of(VOLUME)) == 1
    assert "containers[0].args[1]" in verdict.undecided(VOLUME)[0]


def test_an_unknown_mount_may_hold_the_checkpoints(judge, build):
    mounts = [{"name": "data", "mountPath": judge.unknown}]
    verdict = judge.resource(JOB, build.job(build.gpu(args=ARGS, volumeMounts=mounts), volumes=by_claim()))
    assert verdict.of(VOLUME) == [] and "mountPath" in verdict.undecided(VOLUME)[0]


def test_options_are_told_apart():
    writes = ["checkpoint-dir", "ckpt_path", "save-checkpoint", "output-dir", "save", "model.checkpoints"]
    reads = ["load-checkpoint", "resume_from_checkpoint", "data", "checkpoint-every", "init_checkpoint_dir"]
    assert [o for o in writes if not is_checkpoint_option(o)] == []
    assert [o for o in reads if is_checkpoint_option(o)] == []


def test_a_shell_line_with_broken_quotes_is_still_read():
    assert list(paths_in_arguments(["echo 'x && train --save /data"])) == [("/data", "--save")]


@pytest.mark.parametrize(
    "value",
    ["--checkpoint-dir=$(OUT)/run", "cd / && python train.py --save-dir ${OUT}", "train --output_dir $OUT/a"],
)
def test_a_variable_in_an_argument_is_followed(judge, build, value):
    mounts = [{"name": "data", "mountPath": "/scratch"}]
    container = build.gpu(args=[value], env=[{"name": "OUT", "value": "/scratch"}], volumeMounts=mounts)
    job = build.job(container, volumes=[{"name": "data", "emptyDir": {}}])
    (message,) = judge.resource(JOB, job).of(VOLUME)
    assert "checkpoints at /scratch" in message


@pytest.mark.parametrize(
    ("mount", "claim"), [({"readOnly": True}, {}), ({}, {"readOnly": True})], ids=["mount", "claim"]
)
def test_what_is_mounted_read_only_is_read(judge, example, build, mount, claim):
    container = build.gpu(args=ARGS, volumeMounts=[{**MOUNT[0], **mount}])
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "training-checkpoints", **claim}}]
    job = build.job(container, volumes=volumes, metadata={"namespace": "ml-batch"})
    verdict = judge.stack(example(JOB, job), example(PVC, pvc("ReadWriteOnce"), "pvc"))
    assert verdict.of(CLAIM) == [] and judge.resource(JOB, job).of(VOLUME) == []


@pytest.mark.parametrize(
    "words",
    [
        ["lm_eval", "--tasks", "x"],
        ["trtllm-build"],
        ["python", "-m", "bench.run"],
        ["bash", "-c", "vllm serve m"],
    ],
)
def test_the_output_of_other_work_is_no_checkpoint(judge, build, words):
    mounts = [{"name": "data", "mountPath": "/out"}]
    container = build.gpu(command=words, args=["--output_dir", "/out"], volumeMounts=mounts)
    job = build.job(container, volumes=[{"name": "data", "emptyDir": {}}])
    assert judge.resource(JOB, job).of(VOLUME) == []


@pytest.mark.parametrize(
    ("name", "provisioner"),
    [("gp3", None), ("premium-rwo", None), ("fast", "ebs.csi.aws.com"), ("fast", "disk.csi.azure.com")],
)
def test_a_shared_claim_of_a_class_that_can_not_share_is_refused(judge, example, build, name, provisioner):
    claim = pvc("ReadWriteMany")
    claim["spec"]["storageClassName"] = name
    job = build.job(
        build.gpu(args=ARGS, volumeMounts=MOUNT), volumes=by_claim(), metadata={"namespace": "ml-batch"}
    )
    classes = {"metadata": {"name": name}, "provisioner": provisioner}
    made = [example("kubernetes:storage.k8s.io/v1:StorageClass", classes, "class")] if provisioner else []
    (message,) = judge.stack(example(JOB, job), example(PVC, claim, "pvc"), *made).of(CLAIM)
    assert f"the volumes of its class '{name}'" in message


def test_a_class_of_the_stack_is_judged_by_its_provisioner_and_not_by_its_name(judge, example, build):
    claim = pvc("ReadWriteMany")
    claim["spec"]["storageClassName"] = "gp3"
    job = build.job(
        build.gpu(args=ARGS, volumeMounts=MOUNT), volumes=by_claim(), metadata={"namespace": "ml-batch"}
    )
    classes = {"metadata": {"name": "gp3"}, "provisioner": "efs.csi.aws.com"}
    made = example("kubernetes:storage.k8s.io/v1:StorageClass", classes, "class")
    assert judge.stack(example(JOB, job), example(PVC, claim, "pvc"), made).of(CLAIM) == []
