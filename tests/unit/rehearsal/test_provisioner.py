"""The rehearsal's shared volumes: one per claim, found again, never handed to another claim."""

import stat
from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from rehearsal import provisioner


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_STATE", str(tmp_path))


class Api:
    """The calls that the provisioner makes, on volumes in memory."""

    def __init__(self, *claims):
        self.volumes = {}
        self.claims = claims

    def list_persistent_volume_claim_for_all_namespaces(self):
        return SimpleNamespace(items=list(self.claims))

    def list_persistent_volume(self):
        items = []
        for name, spec in self.volumes.items():
            reference = SimpleNamespace(**spec["claimRef"])
            items.append(
                SimpleNamespace(
                    metadata=SimpleNamespace(name=name),
                    spec=SimpleNamespace(storage_class_name=spec["storageClassName"], claim_ref=reference),
                )
            )
        return SimpleNamespace(items=items)

    def create_persistent_volume(self, body):
        if body["metadata"]["name"] in self.volumes:
            raise ApiException(status=409)
        self.volumes[body["metadata"]["name"]] = body["spec"]

    def patch_persistent_volume(self, name, body):
        self.volumes[name].update(body["spec"])

    def delete_persistent_volume(self, name):
        if name not in self.volumes:
            raise ApiException(status=404)
        del self.volumes[name]


def claim(name="training-checkpoints", namespace="ml-batch", uid="1", storage_class="rehearsal-rwx", **changes):
    metadata = SimpleNamespace(name=name, namespace=namespace, uid=uid, deletion_timestamp=changes.get("deleted"))
    resources = SimpleNamespace(requests={"storage": changes.get("size", "100Gi")})
    spec = SimpleNamespace(
        storage_class_name=storage_class, volume_name=changes.get("volume"), resources=resources
    )
    return SimpleNamespace(metadata=metadata, spec=spec)


def test_a_claim_gets_a_retained_shared_volume_that_the_run_s_group_may_write():
    api = Api()
    provisioner.provision(api, claim())
    [spec] = api.volumes.values()
    assert "ReadWriteMany" in spec["accessModes"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["claimRef"] | {"apiVersion": "", "kind": ""} == {
        "apiVersion": "", "kind": "", "namespace": "ml-batch", "name": "training-checkpoints", "uid": "1",
    }  # fmt: skip
    folder = provisioner.volumes_dir() / "ml-batch" / "training-checkpoints"
    assert spec["local"]["path"] == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o2775


def test_a_claim_that_is_made_again_gets_its_volume_back_with_its_files():
    api = Api()
    provisioner.provision(api, claim(uid="1"))
    kept = provisioner.volumes_dir() / "ml-batch" / "training-checkpoints" / "result.json"
    kept.write_text("{}")
    provisioner.provision(api, claim(uid="2"))
    [spec] = api.volumes.values()
    assert spec["claimRef"]["uid"] == "2"
    assert kept.read_text() == "{}"


@pytest.mark.parametrize("other", [{"namespace": "vision"}, {"name": "datasets"}])
def test_another_claim_never_gets_the_same_folder(other):
    api = Api()
    provisioner.provision(api, claim())
    provisioner.provision(api, claim(uid="2", **other))
    paths = [spec["local"]["path"] for spec in api.volumes.values()]
    assert len(set(paths)) == 2


def test_names_that_read_alike_when_joined_are_two_volumes():
    api = Api()
    provisioner.provision(api, claim(namespace="team-a", name="b"))
    provisioner.provision(api, claim(namespace="team", name="a-b", uid="2"))
    assert len(api.volumes) == 2


@pytest.mark.parametrize("foreign", [{"storage_class": "standard"}, {"deleted": "now"}, {"volume": "bound-already"}])
def test_claims_that_are_not_its_own_to_serve_are_left_alone(foreign):
    api = Api()
    provisioner.provision(api, claim(**foreign))
    assert api.volumes == {}


@pytest.fixture
def mounts(monkeypatch):
    """What is limited to how many bytes, without the mounts themselves, which need root."""
    made = {}
    monkeypatch.setattr(provisioner, "bound", made.__setitem__)
    monkeypatch.setattr(provisioner, "release", lambda folder: made.pop(folder))
    return made


def bounded(**changes):
    return claim(storage_class="rehearsal-rwx-bounded", size="64Mi", **changes)


def test_a_bounded_claim_gets_a_volume_of_its_size_that_goes_with_the_claim(mounts):
    api = Api()
    provisioner.provision(api, bounded())
    folder = provisioner.volumes_dir() / "ml-batch" / "training-checkpoints"
    assert mounts == {folder: 64 * 1024 * 1024}
    [name] = api.volumes
    for _ in range(2):  # told twice, when the watch begins anew
        mounts.setdefault(folder, 0)
        provisioner.give_back(api, bounded(volume=name))
        assert (mounts, api.volumes, folder.exists()) == ({}, {}, False)


def test_a_bound_claim_s_volume_is_limited_again_when_the_machine_was_restarted(mounts):
    api = Api()
    provisioner.provision(api, bounded(volume="rehearsal-rwx-bounded.ml-batch.training-checkpoints"))
    assert list(mounts.values()) == [64 * 1024 * 1024]
    assert api.volumes == {}, "its volume is there already"


def test_a_bounded_claim_larger_than_memory_should_give_gets_none(mounts, capsys):
    api = Api()
    provisioner.provision(api, claim(storage_class="rehearsal-rwx-bounded", size="2Gi"))
    assert (mounts, api.volumes) == ({}, {})
    assert "at most 1073741824 bytes" in capsys.readouterr().out


def test_a_retained_volume_stays_when_its_claim_goes(mounts):
    api = Api()
    provisioner.provision(api, claim())
    [name] = api.volumes
    provisioner.give_back(api, claim(volume=name))
    assert list(api.volumes) == [name]


@pytest.mark.parametrize("since", [(), (bounded(uid="2"),)], ids=["no claim", "a new claim of the same name"])
def test_a_bounded_volume_goes_whose_claim_went_while_nobody_watched(mounts, since):
    api = Api(*since)
    provisioner.provision(api, bounded(uid="1"))
    left = provisioner.volumes_dir() / "ml-batch" / "training-checkpoints" / "left"
    left.write_text("of the claim that went")
    provisioner.give_back_unclaimed(api)
    assert (mounts, api.volumes, left.exists()) == ({}, {}, False)


def test_volumes_that_are_claimed_or_retained_stay_when_the_watch_begins_anew(mounts):
    api = Api(bounded(uid="1"))
    provisioner.provision(api, bounded(uid="1"))
    provisioner.provision(api, claim(name="kept", uid="gone"))
    made = dict(api.volumes)
    provisioner.give_back_unclaimed(api)
    assert (len(mounts), api.volumes) == (1, made)
