"""One acceptance at a time: of two that look at the same moment only one begins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from components.settings.run import RunSettings
from ops.acceptance.turn import Taken, give_back, holder, turn
from ops.exit_codes import ExitCode
from ops.stacks import Stack
from ops.verbs.accept import clear, refuse_another
from tests.unit.ops.fake_cluster import NAMESPACE, FakeCluster

LABELS = {"holdfast.dev/acceptance": "aaaa"}
LOOKER = "accept-aaaa-look-claim-1"


class Place:
    """Where an acceptance was killed, as far as its removal asks for it."""

    team = SimpleNamespace(namespace_name=NAMESPACE, checkpoint_storage=SimpleNamespace(claim_name="claim"))
    run = RunSettings.model_validate(
        {"id": "run-001", "team": NAMESPACE, "pool": "gpu", "image": "docker.io/a/b@sha256:" + "a" * 64}
    )
    pool = SimpleNamespace(node_selector={"pool": "gpu"}, tolerations=[])


@pytest.fixture
def killed() -> FakeCluster:
    """A cluster on which an acceptance was killed: its turn, its run's Pod and its reader of the volume."""
    cluster = FakeCluster()
    cluster.node("gpu-0")
    with pytest.raises(Taken), turn(cluster, NAMESPACE, "aaaa", print):
        lease = cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/holdfast-acceptance")
        raise Taken("aaaa")
    assert lease is not None
    cluster.create(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", lease)
    cluster.pod(LOOKER, labels={**LABELS, "holdfast.dev/acceptance-inspector": "true"})
    return cluster


def test_what_a_killed_one_left_is_removed_with_its_reader_directories_and_turn(killed: FakeCluster) -> None:
    assert clear(killed, Place(), "aaaa") == []  # type: ignore[arg-type]
    assert [words[-1] for words in killed.executed] == ["accept-*-aaaa[js]"]
    assert not [path for path in killed.objects if "aaaa" in path]
    assert holder(killed, NAMESPACE) == ""


def test_what_could_not_be_removed_keeps_the_turn_so_that_it_is_found_again(killed: FakeCluster) -> None:
    killed.refuse = ["EXEC"]
    assert any(told.startswith("Directories on claim were left") for told in clear(killed, Place(), "aaaa"))  # type: ignore[arg-type]
    assert holder(killed, NAMESPACE) == "aaaa"
    assert not [path for path in killed.objects if LOOKER in path]


def test_of_two_only_one_has_its_turn_and_the_other_is_told_whose_it_is() -> None:
    cluster = FakeCluster()
    with turn(cluster, NAMESPACE, "aaaa", print):
        with pytest.raises(Taken, match="Acceptance aaaa"), turn(cluster, NAMESPACE, "bbbb", print):
            raise AssertionError("two at once")
        assert holder(cluster, NAMESPACE) == "aaaa", "the refused one took nothing away"
    assert holder(cluster, NAMESPACE) == ""
    with turn(cluster, NAMESPACE, "bbbb", print):
        assert holder(cluster, NAMESPACE) == "bbbb"


@pytest.mark.parametrize("end", [KeyboardInterrupt, ValueError])
def test_the_turn_is_given_back_in_every_way_out(end: type[BaseException]) -> None:
    cluster = FakeCluster()
    with pytest.raises(end), turn(cluster, NAMESPACE, "aaaa", print):
        raise end
    assert holder(cluster, NAMESPACE) == ""


def test_a_turn_that_can_not_be_given_back_is_told_and_refuses_the_next_until_it_is_cleaned() -> None:
    cluster, told = FakeCluster(), []
    with turn(cluster, NAMESPACE, "aaaa", told.append):
        cluster.refuse = ["DELETE"]
    assert told[0].startswith(f"Lease {NAMESPACE}/holdfast-acceptance is left")
    cluster.refuse = []
    with pytest.raises(Exception, match=r"Another acceptance \(aaaa\).*") as caught:
        refuse_another(cluster, NAMESPACE, Stack("dev", None, {}))  # type: ignore[arg-type]
    assert caught.value.code is ExitCode.NOT_READY  # type: ignore[attr-defined]
    assert give_back(cluster, NAMESPACE, "bbbb") == [] and holder(cluster, NAMESPACE) == "aaaa"
    assert give_back(cluster, NAMESPACE, "aaaa") == [] and holder(cluster, NAMESPACE) == ""
