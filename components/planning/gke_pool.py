"""A node pool on GKE, decided: the final arguments of `gcp.container.NodePool`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.planning.gke_gpus import gpus_of
from components.planning.labels import environment_labels
from components.planning.merge import deep_merge
from components.planning.node_pools import NodePoolPlan, cloud_taints
from components.settings.gke_pool import GkeSettings
from components.settings.node_pool import GkeNodePoolSettings

NO_DEVICE_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"


@dataclass(frozen=True)
class GkePoolPlan:
    """One pool on GKE, decided."""

    name: str
    arguments: Mapping[str, Any]
    """Arguments of `gcp.container.NodePool` by the provider's own names (camelCase), final."""


def plan_gke_pool(pool: GkeNodePoolSettings, common: NodePoolPlan, environment: str) -> GkePoolPlan:
    """The plan of one pool whose settings have been checked, see gke_checks.py."""
    gke = pool.gke
    zones = len(gke.node_locations) or 1
    ours: dict[str, Any] = {
        "name": pool.cloud_name,
        "cluster": gke.cluster,
        "location": gke.location,
        **({"project": gke.project} if gke.project else {}),
        **({"nodeLocations": list(gke.node_locations)} if gke.node_locations else {}),
        **({"version": gke.version} if gke.version else {}),
        # Per zone, and only at creation: later the autoscaler decides.
        "initialNodeCount": -(-gke.min_nodes // zones),
        "autoscaling": {
            "totalMinNodeCount": gke.min_nodes,
            "totalMaxNodeCount": gke.max_nodes,
            # ANY: unused reservations first, and less preemption of Spot nodes (the provider's
            # documentation).
            "locationPolicy": "ANY" if gke.spot or gke.reservation else "BALANCED",
        },
        **_upgrades(gke),
        # GPUs are scarce: an upgrade that first needs one node more may never begin.
        "upgradeSettings": {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1},
        **({"placementPolicy": {"type": "COMPACT"}} if gke.compact_placement else {}),
        "nodeConfig": _node_config(pool, common, environment),
    }
    return GkePoolPlan(pool.name, deep_merge(ours, gke.node_pool_args))


def _upgrades(gke: GkeSettings) -> dict[str, Any]:
    """A version and automatic upgrades would fight each other (the provider's documentation of `version`).

    In a release channel they can not be turned off (terraform-google-kubernetes-engine#682), but be put off
    for the pool. Without a channel, which GKE ends on 14 June 2027 (GKE documentation, About release
    channels), it is the other way round.
    """
    if gke.version is None:
        return {"management": {"autoRepair": True, "autoUpgrade": True}}
    if not gke.release_channel:
        return {"management": {"autoRepair": True, "autoUpgrade": False}}
    return {
        "management": {"autoRepair": True, "autoUpgrade": True},
        "maintenancePolicies": [{"exclusionUntilEndOfSupports": [{"enabled": True}]}],
    }


def _node_config(pool: GkeNodePoolSettings, common: NodePoolPlan, environment: str) -> dict[str, Any]:
    gke = pool.gke
    labels = {**common.labels, **({} if gke.default_device_plugin else {NO_DEVICE_PLUGIN: "true"})}
    config: dict[str, Any] = {
        "machineType": gke.machine_type,
        "guestAccelerators": [_accelerator(gke)],
        "imageType": gke.image_type,
        "diskSizeGb": gke.disk_gib,
        "labels": labels,
        # GKE's own taint nvidia.com/gpu=present is not declared: declared too it is a duplicate
        # (terraform-provider-google#7928).
        "taints": cloud_taints(common),
        "resourceLabels": {**_resource_labels(environment), "node-pool": pool.cloud_name},
        "serviceAccount": gke.service_account,
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        # Pods get the rights of workload identity, never the node's.
        "workloadMetadataConfig": {"mode": "GKE_METADATA"},
        # The API's own default; without it any other metadata would unset it (the provider's documentation).
        "metadata": {"disable-legacy-endpoints": "true"},
        "gvnic": {"enabled": gke.gvnic},
    }
    if gke.spot:
        config["spot"] = True
    if gke.reservation:
        config["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [gke.reservation],
        }
    return config


def _accelerator(gke: GkeSettings) -> dict[str, Any]:
    gpus, accelerator = gpus_of(gke), gke.accelerator
    assert gpus is not None, "checked by gke_checks.py"
    found: dict[str, Any] = {
        "type": gpus.type,
        "count": gpus.count,
        # Never left to the provider, whose default caused a recreation (magic-modules#11152).
        "gpuDriverInstallationConfig": {"gpuDriverVersion": accelerator.driver},
    }
    if accelerator.partition:
        found["gpuPartitionSize"] = accelerator.partition
    if accelerator.sharing:
        found["gpuSharingConfig"] = {
            "gpuSharingStrategy": accelerator.sharing.strategy,
            "maxSharedClientsPerGpu": accelerator.sharing.max_clients_per_gpu,
        }
    return found


def _resource_labels(environment: str) -> dict[str, str]:
    """Ours as Google's labels, which have neither dots nor slashes: they sort the bill."""
    return {key.rsplit("/", 1)[-1]: value for key, value in environment_labels(environment).items()}
