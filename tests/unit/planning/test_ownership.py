"""Who owns which layer, from the one table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from components.planning.ownership import LAYERS, OPERATOR, operator_profile, owner_title, owners_of, profiles
from components.settings.node_pool import SelfManagedNodePoolSettings
from components.settings.problems import SettingsError
from components.settings.stack import StackSettings

Stack = Callable[..., StackSettings]


def _pool(name: str, profile: str) -> SelfManagedNodePoolSettings:
    return SelfManagedNodePoolSettings.model_validate(
        {"name": name, "profile": profile, "selectNodes": {"names": [f"{name}-0"]}, "gpusPerNode": 1}
    )


def test_on_a_host_with_driver_and_toolkit_the_operator_owns_plugin_and_nfd() -> None:
    ownership = owners_of(_pool("gpu", "self-managed-driver-toolkit"))
    assert {item.layer: item.owner for item in ownership.layers} == {
        "driver": "host",
        "toolkit": "host",
        "devicePlugin": OPERATOR,
        "nfd": OPERATOR,
    }
    assert ownership.owner("driver") == "host"
    assert ownership.runtime_class == "nvidia"


def test_every_layer_says_why_its_owner_owns_it() -> None:
    for item in owners_of(_pool("gpu", "self-managed-driver-toolkit")).layers:
        assert item.reason == profiles()["self-managed-driver-toolkit"].reason


def test_an_nfd_that_the_cluster_has_already_is_its_owner_with_that_reason() -> None:
    ownership = owners_of(_pool("gpu", "rehearsal"), nfd="existing")
    nfd = ownership.layers[-1]
    assert (nfd.layer, nfd.owner) == ("nfd", "existing")
    assert nfd.reason == "gpuOperator.nfd says that the cluster runs Node Feature Discovery already."


def test_every_supported_row_has_exactly_one_owner_of_driver_toolkit_and_plugin() -> None:
    for profile in profiles().values():
        if profile.status != "supported":
            continue
        for layer in LAYERS[:3]:
            assert profile.owners[layer], f"{profile.name}: nobody owns {layer}"
            enabled = profile.values[layer]["enabled"]
            assert enabled is (profile.owners[layer] == OPERATOR), f"{profile.name}: {layer}"


def test_a_runtime_class_of_jobs_is_one_that_the_operator_creates() -> None:
    for profile in profiles().values():
        if profile.runtime_class and profile.status == "supported":
            assert profile.runtime_class in profile.created_runtime_classes, profile.name


@pytest.mark.parametrize("name", [name for name, row in profiles().items() if row.status == "reject"])
def test_a_row_that_the_table_rejects_is_refused_with_the_tables_own_message(name: str, stack: Stack) -> None:
    with pytest.raises(SettingsError) as caught:
        stack(pool={"profile": name})
    (problem,) = caught.value.problems
    reject = profiles()[name].reject
    assert reject is not None
    assert problem.key == "holdfast:nodePools[0].profile"
    assert problem.value == f'"{name}"'
    reason, _, way_out = reject.partition(" Either ")
    assert (problem.reason, problem.fix) == (reason, f"either {way_out}")


def test_a_pool_whose_nodes_bring_everything_wants_no_operator() -> None:
    assert operator_profile([_pool("gpu", "eks-bottlerocket")]) is None


def test_the_operator_follows_the_row_of_the_pools_that_it_serves() -> None:
    pools = [_pool("a", "self-managed-driver"), _pool("b", "self-managed-driver")]
    profile = operator_profile(pools)
    assert profile is not None
    assert profile.name == "self-managed-driver"


def test_two_profiles_with_the_same_values_share_one_operator(stack: Stack) -> None:
    second = {
        "name": "stand-in",
        "profile": "rehearsal",
        "selectNodes": {"names": ["n"]},
        "gpusPerNode": 1,
        "labels": {"pool": "stand-in"},
    }
    assert len(stack(more_pools=(second,)).node_pools) == 2


def test_owners_have_names_for_sentences() -> None:
    assert owner_title(None) == "nobody"
    assert owner_title(OPERATOR) == "the GPU Operator"
    assert owner_title("Bottlerocket") == "Bottlerocket"
