"""What a pool on GKE becomes: the provider's arguments, the operator's values, the Job's tolerations."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from itertools import product
from typing import Any

import pytest

from components.planning.extra_values import SECTIONS
from components.planning.gke_checks import RESOURCE
from components.planning.merge import leaves
from components.planning.provider_arguments import arguments_of, keyword_arguments, made_from
from components.planning.stack import StackPlan
from components.settings.problems import SettingsError

Plan = Callable[..., StackPlan]
GKE_TAINT = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}

GKE = {
    "cluster": "training",
    "location": "us-central1-a",
    "version": "1.33.5-gke.1201000",
    "machineType": "a3-highgpu-8g",
    "serviceAccount": "gpu-nodes@acme-ml.iam.gserviceaccount.com",
    "maxNodes": 4,
}


@pytest.fixture
def on_gke(plan: Plan) -> Callable[..., StackPlan]:
    """The plan of a stack with one pool on GKE; keywords change the pool's `gke`."""

    def planned(
        pool: dict[str, Any] | None = None,
        run: dict[str, Any] | None = None,
        more_pools: tuple[dict[str, Any], ...] = (),
        **gke: Any,
    ) -> StackPlan:
        only = {"name": "gpu", "kind": "gke", "gke": GKE | gke, **(pool or {})}
        return plan(only_pool=only, run=run, more_pools=more_pools)

    return planned


def arguments(planned: StackPlan) -> dict[str, Any]:
    return dict(planned.cloud_pools["gpu"].arguments)


def test_the_arguments_of_the_default_pool_are_exactly_these(on_gke: Plan) -> None:
    assert arguments(on_gke()) == {
        "name": "gpu",
        "cluster": "training",
        "location": "us-central1-a",
        "version": "1.33.5-gke.1201000",
        "initialNodeCount": 0,
        "autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 4, "locationPolicy": "BALANCED"},
        "management": {"autoRepair": True, "autoUpgrade": True},
        "maintenancePolicies": [{"exclusionUntilEndOfSupports": [{"enabled": True}]}],
        "upgradeSettings": {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1},
        "nodeConfig": {
            "machineType": "a3-highgpu-8g",
            "guestAccelerators": [
                {
                    "type": "nvidia-h100-80gb",
                    "count": 8,
                    "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
                }
            ],
            "imageType": "COS_CONTAINERD",
            "diskSizeGb": 200,
            "labels": {"pool": "gpu"},
            "taints": [{"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"}],
            "resourceLabels": {
                "managed-by": "pulumi",
                "part-of": "holdfast",
                "environment": "dev",
                "node-pool": "gpu",
            },
            "serviceAccount": "gpu-nodes@acme-ml.iam.gserviceaccount.com",
            "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
            "workloadMetadataConfig": {"mode": "GKE_METADATA"},
            "metadata": {"disable-legacy-endpoints": "true"},
            "gvnic": {"enabled": True},
        },
    }


def test_every_argument_that_we_set_is_one_of_the_provider(on_gke: Plan) -> None:
    full = on_gke(
        project="acme-ml",
        nodeLocations=["us-central1-a"],
        reservation="h100",
        compactPlacement=True,
        accelerator={"partition": "1g.10gb", "sharing": {"strategy": "MPS", "maxClientsPerGpu": 2}},
    )
    known = {path for path, _ in leaves(_flat(arguments_of(RESOURCE)))}
    free = {path[:-1] for path in known if path[-1] == "*"}
    ours = {path for path, _ in leaves(_flat(arguments(full)))}
    assert {path for path in ours if path not in known and path[:-1] not in free} == set()


def _flat(tree: Any) -> Any:
    """Lists of maps as their first element, so that paths compare."""
    if isinstance(tree, dict):
        return {key: _flat(value) for key, value in tree.items()}
    return _flat(tree[0]) if isinstance(tree, list) and tree and isinstance(tree[0], dict) else tree


def test_the_argument_trees_are_of_the_installed_providers() -> None:
    assert {package: metadata.version(package) for package in made_from()} == made_from()


def test_spot_nodes_are_labelled_and_reservations_are_used_alone(on_gke: Plan) -> None:
    spot = arguments(on_gke(spot=True))
    assert spot["nodeConfig"]["spot"] is True and spot["autoscaling"]["locationPolicy"] == "ANY"
    assert spot["nodeConfig"]["labels"] == {"pool": "gpu", "holdfast.dev/spot": "true"}
    assert arguments(on_gke(reservation="h100"))["nodeConfig"]["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["h100"],
    }


@pytest.mark.parametrize(
    ("gke", "upgraded", "put_off"),
    [
        ({}, True, True),
        ({"releaseChannel": False}, False, False),
        ({"version": None}, True, False),
        ({"version": None, "releaseChannel": False}, True, False),
    ],
    ids=["in a channel", "in no channel", "no version", "neither"],
)
def test_nodes_stay_at_their_version_in_a_release_channel_and_out_of_one(
    gke: dict[str, Any], upgraded: bool, put_off: bool, on_gke: Plan
) -> None:
    planned = on_gke(**gke)
    assert arguments(planned)["management"] == {"autoRepair": True, "autoUpgrade": upgraded}
    assert ("maintenancePolicies" in arguments(planned)) is put_off
    told = [
        warning for warning in planned.warnings if "without gke.version GKE upgrades the nodes" in warning
    ]
    assert len(told) == (1 if "version" in gke else 0)


def test_a_reservation_with_a_placement_policy_is_to_be_named_by_it(on_gke: Plan) -> None:
    close = {"reservation": "h100", "compactPlacement": True}
    assert ["very same one" in warning for warning in on_gke(**close).warnings] == [True]
    named = on_gke(**close, nodePoolArgs={"placementPolicy": {"policyName": "close"}})
    assert named.warnings == ()
    assert arguments(named)["placementPolicy"] == {"type": "COMPACT", "policyName": "close"}


def test_the_nodes_at_creation_are_spread_over_the_zones(on_gke: Plan) -> None:
    planned = on_gke(location="us-central1", nodeLocations=["us-central1-a", "us-central1-ai1a"], minNodes=3)
    assert arguments(planned)["initialNodeCount"] == 2
    assert arguments(planned)["autoscaling"]["totalMinNodeCount"] == 3


def test_what_is_passed_on_is_merged_below_what_is_decided(on_gke: Plan) -> None:
    given = {
        "maxPodsPerNode": 32,
        "autoscaling": {"locationPolicy": "ANY"},
        "nodeConfig": {
            "diskType": "pd-ssd",
            "metadata": {"team": "ml"},
            "resourceLabels": {"cost-center": "7"},
        },
    }
    merged = arguments(on_gke(nodePoolArgs=given))
    assert merged["maxPodsPerNode"] == 32
    assert merged["autoscaling"] == {"totalMinNodeCount": 0, "totalMaxNodeCount": 4, "locationPolicy": "ANY"}
    assert merged["nodeConfig"]["metadata"] == {"disable-legacy-endpoints": "true", "team": "ml"}
    assert merged["nodeConfig"]["resourceLabels"]["cost-center"] == "7"
    assert merged["nodeConfig"]["machineType"] == "a3-highgpu-8g"
    assert set(keyword_arguments(merged)) >= {"max_pods_per_node", "node_config", "initial_node_count"}


INSTALLER = {
    "accelerator": {"driver": "INSTALLATION_DISABLED"},
    "defaultDevicePlugin": False,
    "driverInstaller": True,
}
UBUNTU = {
    "imageType": "UBUNTU_CONTAINERD",
    "accelerator": {"driver": "INSTALLATION_DISABLED"},
    "defaultDevicePlugin": False,
}


@pytest.mark.parametrize(
    ("gke", "row", "label", "switches", "runtime_class"),
    [
        ({}, "gke-cos-managed", False, (False, True, False), None),
        ({"accelerator": {"driver": "LATEST"}}, "gke-cos-managed", False, (False, True, False), None),
        (INSTALLER, "gke-cos-installer", True, (False, True, True), "nvidia"),
        (UBUNTU, "gke-ubuntu", True, (True, True, True), "nvidia"),
    ],
    ids=["GKE's driver", "GKE's newest driver", "Google's installer", "Ubuntu"],
)
def test_the_row_follows_from_image_driver_label_and_installer(
    gke: dict[str, Any],
    row: str,
    label: bool,
    switches: tuple[bool, ...],
    runtime_class: str | None,
    on_gke: Plan,
) -> None:
    planned = on_gke(**gke)
    assert planned.pools[0].ownership.profile == row
    labels = arguments(planned)["nodeConfig"]["labels"]
    assert labels.get("gke-no-default-nvidia-gpu-device-plugin") == ("true" if label else None)
    assert planned.operator is not None and set(planned.operator.values) <= set(SECTIONS)
    values = planned.operator.values
    assert tuple(values[layer]["enabled"] for layer in ("driver", "toolkit", "devicePlugin")) == switches
    assert planned.runs[0].runtime_class == runtime_class


def test_every_combination_of_image_driver_label_and_installer_is_a_row_or_refused(on_gke: Plan) -> None:
    images, drivers = ("COS_CONTAINERD", "UBUNTU_CONTAINERD"), ("DEFAULT", "LATEST", "INSTALLATION_DISABLED")
    supported = {}
    for image, driver, plugin, installer in product(images, drivers, (True, False), (True, False)):
        facts = {"imageType": image, "defaultDevicePlugin": plugin, "driverInstaller": installer}
        try:
            planned = on_gke(**facts, accelerator={"driver": driver})
        except SettingsError as error:
            assert all(problem.key.startswith("holdfast:nodePools[0].gke.") for problem in error.problems)
            continue
        supported[image, driver, plugin, installer] = planned.pools[0].ownership.profile
    cos, ubuntu = images
    assert supported == {
        (cos, "DEFAULT", True, True): "gke-cos-managed",
        (cos, "DEFAULT", True, False): "gke-cos-managed",
        (cos, "LATEST", True, True): "gke-cos-managed",
        (cos, "LATEST", True, False): "gke-cos-managed",
        (cos, "INSTALLATION_DISABLED", False, True): "gke-cos-installer",
        (ubuntu, "INSTALLATION_DISABLED", False, False): "gke-ubuntu",
    }


def test_gkes_own_taint_is_tolerated_by_the_job_and_declared_by_nobody(on_gke: Plan) -> None:
    planned = on_gke()
    pod = planned.runs[0].workload["spec"]["template"]["spec"]
    assert pod["tolerations"][:2] == [DEDICATED, GKE_TAINT]
    assert [taint["key"] for taint in arguments(planned)["nodeConfig"]["taints"]] == ["dedicated"]


@pytest.mark.parametrize(
    ("accelerator", "gpus"),
    [
        ({}, 8),
        ({"partition": "1g.10gb"}, 56),
        ({"sharing": {"strategy": "TIME_SHARING", "maxClientsPerGpu": 4}}, 32),
        ({"partition": "3g.40gb", "sharing": {"strategy": "TIME_SHARING", "maxClientsPerGpu": 2}}, 32),
    ],
)
def test_a_node_offers_whole_gpus_partitions_or_shares_and_says_what_they_are(
    accelerator: dict[str, Any], gpus: int, on_gke: Plan
) -> None:
    planned = on_gke(accelerator=accelerator)
    assert planned.pools[0].gpus_per_node == gpus
    told = [warning for warning in planned.warnings if "It separates work, not tenants" in warning]
    assert len(told) == (1 if accelerator else 0)


def test_a_machine_type_of_next_year_is_taken_with_its_gpus_written_out(on_gke: Plan) -> None:
    planned = on_gke(machineType="a5-highgpu-8g", accelerator={"type": "nvidia-r100", "count": 8})
    assert planned.pools[0].gpus_per_node == 8


def test_the_nodes_are_found_by_the_pools_labels_and_there_may_be_none(on_gke: Plan) -> None:
    operator = on_gke(minNodes=2).operator
    assert operator is not None
    (pool,) = operator.expectation.pools
    assert (pool.match_labels, pool.min_nodes) == ({"pool": "gpu"}, 2)


def test_the_operators_namespace_allows_critical_pods_for_every_node_that_may_come(
    on_gke: Plan, plan: Plan
) -> None:
    on_google, on_premises = on_gke(maxNodes=10).operator, plan().operator
    assert on_google is not None and on_premises is not None
    assert on_google.critical_pods_quota is not None
    assert on_google.critical_pods_quota["spec"]["hard"] == {"pods": str(10 * 16 + 50)}
    assert on_premises.critical_pods_quota is None


def test_a_run_on_spot_nodes_is_told_how_little_time_it_gets(on_gke: Plan) -> None:
    planned = on_gke(spot=True, run={"controller": "jobset"})
    (told,) = [warning for warning in planned.warnings if "15 s" in warning]
    assert told.startswith('runs "run-001": pool "gpu" has Spot nodes, which give a Pod at most 15 s')


def _refused(on_gke: Plan, other: dict[str, Any]) -> list[tuple[str, str]]:
    second = {"name": "big", "kind": "gke", "labels": {"pool": "big"}, "gke": GKE | other}
    with pytest.raises(SettingsError) as caught:
        on_gke(more_pools=(second,))
    return [(problem.key, problem.reason) for problem in caught.value.problems]


def test_pools_whose_rows_have_other_owners_can_not_share_an_operator(on_gke: Plan) -> None:
    ((key, reason),) = _refused(on_gke, UBUNTU)
    assert key == "holdfast:nodePools[1].gke"
    assert reason == (
        'pool "big" (profile gke-ubuntu) and pool "gpu" (profile gke-cos-managed) can not share the cluster\'s one GPU'
        " Operator, whose settings hold for all nodes: driver: the GPU Operator and GKE, device plugin: the GPU"
        " Operator and GKE"
    )


def test_startup_taints_are_declared_beside_the_pools_own(on_gke: Plan) -> None:
    startup = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}
    taints = arguments(on_gke(pool={"startupTaints": [startup]}))["nodeConfig"]["taints"]
    assert taints == [
        {"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"},
        {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NO_EXECUTE"},
    ]


def test_a_name_that_another_pool_has_on_gke_since_before_is_refused(on_gke: Plan) -> None:
    second = {"name": "big", "formerNames": ["gpu"], "kind": "gke", "labels": {"pool": "big"}, "gke": GKE}
    with pytest.raises(SettingsError) as caught:
        on_gke(more_pools=(second,))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("holdfast:nodePools[1].formerNames[0]", '"gpu"')
    assert problem.reason.startswith("holdfast:nodePools[0].name is the same")


def test_a_renamed_pool_keeps_its_name_on_gke(on_gke: Plan) -> None:
    renamed = arguments(on_gke(pool={"formerNames": ["old"]}))
    assert (renamed["name"], renamed["nodeConfig"]["resourceLabels"]["node-pool"]) == ("old", "old")


def test_two_pools_of_one_stack_are_in_one_cluster(on_gke: Plan) -> None:
    assert _refused(on_gke, {"cluster": "serving", "project": "acme-ml"}) == [
        (
            "holdfast:nodePools[1].gke.cluster",
            'a stack is one cluster: this pool is in GKE serving us-central1-a acme-ml, and pool "gpu" is in GKE'
            " training us-central1-a",
        )
    ]
