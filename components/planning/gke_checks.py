"""Checks of the pools on GKE: what their fields do not show one by one, and what their runs can not have."""

from __future__ import annotations

from collections.abc import Iterator

from components.planning import provider_arguments
from components.planning.gke_gpus import gpu_table, gpus_of
from components.planning.gke_pool import NO_DEVICE_PLUGIN
from components.settings.consistency import Told, told
from components.settings.draft import Draft
from components.settings.explain import closest
from components.settings.gke_pool import GkeSettings
from components.settings.node_pool import GkeNodePoolSettings
from components.settings.run import RunSettings
from components.settings.stack import StackSettings
from components.settings.substitution import Path

RESOURCE = "gcp:container/nodePool:NodePool"
LONGEST_NAME = 40
SPOT_GRACE_SECONDS = 15
"""What a Pod gets on a Spot node at most (GKE documentation, Spot VMs)."""
_GPU_TAINT_KEY = "nvidia.com/gpu"
# Compute Engine documentation, GPU machine types: GPUs come with these series or are attached to N1 machines.
_GPU_SERIES = ("a2", "a3", "a4", "g2", "g4")
_SERIES_WITHOUT_GPUS = tuple(
    "c2 c2d c3 c3d c4 c4a c4d e2 h3 h4d m1 m2 m3 m4 n2 n2d n4 n4d t2a t2d x4 z3".split()
)


def _setting(name: str) -> tuple[str, str]:
    return f"the pool's own setting {name} decides it", f"write {name} instead"


DECIDED: provider_arguments.Decided = {
    **{
        (key,): _setting(f"gke.{key}")
        for key in ("cluster", "location", "nodeLocations", "project", "version")
    },
    ("name",): _setting("name"),
    ("namePrefix",): _setting("name"),
    **{
        (key,): (
            "the cluster's autoscaler decides how many nodes there are now",
            "write gke.minNodes and gke.maxNodes",
        )
        for key in ("initialNodeCount", "nodeCount", "ignoreNodeCountChanges")
    },
    **{
        ("autoscaling", key): _setting("gke.minNodes" if "min" in key.lower() else "gke.maxNodes")
        for key in ("minNodeCount", "totalMinNodeCount", "maxNodeCount", "totalMaxNodeCount")
    },
    ("management", "autoUpgrade"): (
        "it follows from gke.version: with a version the nodes stay at it, without one GKE upgrades them",
        "write gke.version, or remove gke.version",
    ),
    ("maintenancePolicies",): (
        "it follows from gke.version: with a version the pool stays at it until its end of support",
        "write gke.version, or a maintenance exclusion of the cluster",
    ),
    ("placementPolicy", "type"): _setting("gke.compactPlacement"),
    ("queuedProvisioning",): (
        "such a pool gets nodes only for a ProvisioningRequest, which no run here makes, so that runs"
        " would wait for ever",
        "remove it, and let the autoscaler add nodes between gke.minNodes and gke.maxNodes",
    ),
    ("nodeConfig", "machineType"): _setting("gke.machineType"),
    ("nodeConfig", "guestAccelerators"): _setting("gke.accelerator"),
    ("nodeConfig", "imageType"): _setting("gke.imageType"),
    ("nodeConfig", "nodeImageConfigs"): _setting("gke.imageType"),
    ("nodeConfig", "spot"): _setting("gke.spot"),
    ("nodeConfig", "preemptible"): _setting("gke.spot"),
    ("nodeConfig", "reservationAffinity"): _setting("gke.reservation"),
    ("nodeConfig", "gvnic"): _setting("gke.gvnic"),
    ("nodeConfig", "serviceAccount"): _setting("gke.serviceAccount"),
    ("nodeConfig", "diskSizeGb"): _setting("gke.diskGiB"),
    ("nodeConfig", "labels"): _setting("labels"),
    ("nodeConfig", "taints"): _setting("taint"),
    ("nodeConfig", "effectiveTaints"): _setting("taint"),
    ("nodeConfig", "oauthScopes"): (
        "the rights of the nodes are those of their service account, and the old scopes would only hide that",
        "give gke.serviceAccount the roles that the nodes need",
    ),
    ("nodeConfig", "workloadMetadataConfig"): (
        "with anything but GKE_METADATA every Pod could take the node's own credentials",
        "remove it; a Pod gets rights by workload identity, as the run's serviceAccount",
    ),
    ("nodeConfig", "metadata", "disable-legacy-endpoints"): (
        "the old metadata server gives the node's credentials to whoever asks",
        "remove it",
    ),
    ("nodeConfig", "sandboxConfig"): (
        "a sandbox is another runtime than the one that the container toolkit gives GPUs to",
        "remove it, and write a pool without GPUs for sandboxed Pods outside this stack",
    ),
    ("nodeConfig", "windowsNodeConfig"): (
        "no driver, toolkit or operand of the table runs on Windows",
        "remove it",
    ),
}
"""Arguments of the provider that ownership, safety or the pool's other settings depend on."""


def problems(draft: Draft) -> Iterator[Told]:
    """Every problem of the pools on GKE and of the runs on them."""
    for index, pool in draft.node_pools.items():
        if isinstance(pool, GkeNodePoolSettings):
            path: Path = ("nodePools", index)
            yield from _names(path, pool)
            yield from _zones((*path, "gke"), pool.gke)
            yield from _gpus(path, pool)
            yield from _owners((*path, "gke"), pool.gke)
            yield from _passed_on((*path, "gke"), pool.gke)
    for index, run in draft.runs.items():
        pool_of_run = draft.pool(run.pool)
        if isinstance(pool_of_run, GkeNodePoolSettings):
            yield from _run(("runs", index), run, pool_of_run, draft)


def warnings(settings: StackSettings) -> Iterator[str]:
    """What works, and what a person should know about it."""
    for pool in settings.node_pools:
        if not isinstance(pool, GkeNodePoolSettings):
            continue
        gke = pool.gke
        yield from _upgrade_warnings(pool)
        gpus = gpus_of(gke)
        if gpus and gpus.per_gpu > 1:
            what = f"a partition {gke.accelerator.partition}" if gke.accelerator.partition else "a share"
            if gke.accelerator.partition and gke.accelerator.sharing:
                what = f"a share of a partition {gke.accelerator.partition}"
            yield (
                f'nodePools "{pool.name}": one nvidia.com/gpu there is {what} of a {gpus.type}, and'
                " quotas count it as a whole GPU. It separates work, not tenants: let one team alone use"
                " the pool."
            )
        for run in settings.runs:
            if (
                gke.spot
                and run.pool == pool.name
                and run.grace_seconds > SPOT_GRACE_SECONDS
                and not run.cancelled
            ):
                yield (
                    f'runs "{run.id}": pool "{pool.name}" has Spot nodes, which give a Pod at most'
                    f" {SPOT_GRACE_SECONDS} s, whatever graceSeconds says ({run.grace_seconds}). What counts"
                    " there is how often the run saves."
                )


def _upgrade_warnings(pool: GkeNodePoolSettings) -> Iterator[str]:
    gke = pool.gke
    if gke.version is None:
        yield (
            f'nodePools "{pool.name}": without gke.version GKE upgrades the nodes, and its driver with them,'
            " when it likes; a run then goes on from its last checkpoint. Write gke.version to decide it"
            " yourself."
        )
    if gke.reservation and gke.compact_placement and "placementPolicy" not in gke.node_pool_args:
        yield (
            f'nodePools "{pool.name}": a reservation that was made with a placement policy serves only nodes'
            " with the very same one. If it was, add its name: gke.nodePoolArgs: {placementPolicy: {policyName: …}}."
            " If it was not, remove gke.compactPlacement."
        )


def _names(path: Path, pool: GkeNodePoolSettings) -> Iterator[Told]:
    name = pool.cloud_name
    if len(name) > LONGEST_NAME or not name[0].isalpha():
        meant = name.lstrip("0123456789-")[:LONGEST_NAME].rstrip("-") or "gpu"
        yield told(
            (*path, *(("formerNames", 0) if pool.former_names else ("name",))),
            name,
            f"the name of a node pool on GKE has at most {LONGEST_NAME} characters and begins with a letter",
            f"write another one, such as {meant}",
        )
    settings = {
        ("taint",): pool.taint,
        **{("startupTaints", n): t for n, t in enumerate(pool.startup_taints)},
    }
    for setting, taint in settings.items():
        if (taint.key, taint.effect) != (_GPU_TAINT_KEY, "NoSchedule"):
            continue
        yield told(
            (*path, *setting),
            str(taint),
            "GKE itself taints nodes with GPUs nvidia.com/gpu=present:NoSchedule and refuses a second"
            " taint of that key and effect (terraform-provider-google#7928)",
            "write another key, such as dedicated; runs and operands tolerate GKE's own taint in any case",
        )
    for key, value in pool.labels.items():
        if key == NO_DEVICE_PLUGIN:
            yield told(
                (*path, "labels", key),
                value,
                "the pool's own setting gke.defaultDevicePlugin decides it",
                "write gke.defaultDevicePlugin: false instead",
            )
        elif key.split("/")[0] in ("cloud.google.com", "node.gke.io", "kubernetes.io", "node.kubernetes.io"):
            yield told((*path, "labels", key), value, "GKE sets such labels itself", "choose another key")


def _zones(path: Path, gke: GkeSettings) -> Iterator[Told]:
    parts = gke.location.split("-")
    region = "-".join(parts[:2])
    for number, zone in enumerate(gke.node_locations):
        here = (*path, "nodeLocations", number)
        if not zone.startswith(f"{region}-"):
            yield told(
                here,
                zone,
                f"the cluster is in {gke.location}",
                f"write a zone of {region}, such as {region}-a",
            )
        elif zone in gke.node_locations[:number]:
            yield told(here, zone, "the zone is in the list already", "remove it")
    if len(parts) == 2 and not gke.node_locations:
        yield told(
            (*path, "nodeLocations"),
            None,
            f"it is missing, and not every zone of {gke.location} has the GPUs of {gke.machine_type}",
            f"add the zones that have them, such as [{region}-a]; `gcloud compute accelerator-types list`"
            " shows them",
        )
    if gke.compact_placement and len(gke.node_locations) > 1:
        yield told(
            (*path, "compactPlacement"),
            True,
            "nodes that stand close to each other are in one zone, and nodeLocations has"
            f" {len(gke.node_locations)}",
            "write one zone in nodeLocations, or a pool for each zone",
        )
    if gke.spot and gke.reservation:
        yield told(
            (*path, "reservation"),
            gke.reservation,
            "Spot nodes are never taken from a reservation",
            "remove spot, or remove reservation",
        )


def _gpus(path: Path, pool: GkeNodePoolSettings) -> Iterator[Told]:
    gke, accelerator = pool.gke, pool.gke.accelerator
    here: Path = (*path, "gke")
    own = gpu_table()["machines"].get(gke.machine_type)
    found = list(_known_machine(here, gke, *own) if own else _unknown_machine(here, gke))
    yield from found
    gpus = gpus_of(gke)
    if found or gpus is None:
        return
    sizes = gpu_table()["partitions"].get(gpus.type, {})
    if accelerator.partition and accelerator.partition not in sizes:
        yield told(
            (*here, "accelerator", "partition"),
            accelerator.partition,
            f"{gpus.type} has no partitions of this size",
            f"write one of {', '.join(sizes)}" if sizes else "remove it",
        )
    elif pool.gpus_per_node is not None and pool.gpus_per_node != gpus.allocatable:
        each = f", each offered as {gpus.per_gpu}" if gpus.per_gpu > 1 else ""
        yield told(
            (*path, "gpusPerNode"),
            pool.gpus_per_node,
            f"a node of this pool has {gpus.count} of {gpus.type}{each}",
            f"write {gpus.allocatable}, or remove it: it follows from gke",
        )


def _known_machine(path: Path, gke: GkeSettings, kind: str, count: int) -> Iterator[Told]:
    for field, given, wanted in (
        ("type", gke.accelerator.type, kind),
        ("count", gke.accelerator.count, count),
    ):
        if given is not None and given != wanted:
            yield told(
                (*path, "accelerator", field),
                given,
                f"the machine type {gke.machine_type} has {count} of {kind}",
                f"write {wanted}, or remove it: it follows from the machine type",
            )


def _unknown_machine(path: Path, gke: GkeSettings) -> Iterator[Told]:
    table, accelerator = gpu_table(), gke.accelerator
    series = gke.machine_type.split("-")[0]
    if series == "n1":
        yield from _attached(path, gke)
    elif series == "a4x":
        yield told(
            (*path, "machineType"),
            gke.machine_type,
            "its nodes are Arm nodes, which GKE taints kubernetes.io/arch=arm64:NoSchedule, and the table"
            " of owners has no row for them",
            f"write a machine type such as {closest(gke.machine_type, table['machines']) or 'a4-highgpu-8g'}",
        )
    elif series in _SERIES_WITHOUT_GPUS:
        yield told(
            (*path, "machineType"),
            gke.machine_type,
            f"a machine of the series {series} has no GPU and can not be given one",
            f"write a machine type of the series {', '.join(_GPU_SERIES)} or n1",
        )
    elif accelerator.type is None or accelerator.count is None:
        meant = closest(gke.machine_type, table["machines"])
        yield told(
            (*path, "machineType"),
            gke.machine_type,
            f"how many GPUs it has is not known here (table of {table['asOf']})",
            (f"did you mean {meant}? Otherwise " if meant else "")
            + "add gke.accelerator.type and gke.accelerator.count as Google's documentation has them",
        )


def _attached(path: Path, gke: GkeSettings) -> Iterator[Told]:
    kinds, accelerator = gpu_table()["attachable"], gke.accelerator
    if accelerator.type not in kinds:
        reason = "it is missing, and an N1 machine has no GPU of its own"
        yield told(
            (*path, "accelerator", "type"),
            accelerator.type,
            "it can not be attached to an N1 machine" if accelerator.type else reason,
            f"{'write' if accelerator.type else 'add'} one of {', '.join(kinds)}",
        )
    elif accelerator.count not in kinds[accelerator.type]:
        counts = ", ".join(map(str, kinds[accelerator.type]))
        reason = f"an N1 machine can have {counts} of {accelerator.type}"
        yield told(
            (*path, "accelerator", "count"),
            accelerator.count,
            reason if accelerator.count else f"it is missing, and {reason}",
            f"{'write' if accelerator.count else 'add'} one of {counts}",
        )


def _owners(path: Path, gke: GkeSettings) -> Iterator[Told]:
    """Combinations that no row of the table has. The rows that it refuses are told where all rows are."""
    by_gke = gke.accelerator.driver != "INSTALLATION_DISABLED"
    if gke.image_type == "UBUNTU_CONTAINERD":
        yield from _owners_on_ubuntu(path, gke, by_gke)
    elif not by_gke and gke.driver_installer and gke.default_device_plugin:
        yield told(
            (*path, "defaultDevicePlugin"),
            True,
            "the device plugin would have two owners: GKE and the GPU Operator, whose it is beside"
            " Google's driver installer",
            "write false, or remove driverInstaller and write accelerator.driver: DEFAULT",
        )
    for field, given in (("partition", gke.accelerator.partition), ("sharing", gke.accelerator.sharing)):
        if given and not gke.default_device_plugin:
            yield told(
                (*path, "accelerator", field),
                given if isinstance(given, str) else None,
                "GKE's own device plugin offers partitions and shares, and defaultDevicePlugin: false"
                " turns it off",
                "remove it, or remove defaultDevicePlugin",
            )


def _owners_on_ubuntu(path: Path, gke: GkeSettings, by_gke: bool) -> Iterator[Told]:
    why = "on Ubuntu nodes it is the GPU Operator's"
    if by_gke:
        yield told(
            (*path, "accelerator", "driver"),
            gke.accelerator.driver,
            f"the driver would have two owners: GKE and the GPU Operator; {why}",
            "write INSTALLATION_DISABLED, or imageType: COS_CONTAINERD",
        )
    if gke.driver_installer:
        yield told(
            (*path, "driverInstaller"),
            True,
            f"the driver would have two owners: Google's installer and the GPU Operator; {why}",
            "remove it and keep the installer DaemonSet off these nodes, or write imageType: COS_CONTAINERD",
        )
    if gke.default_device_plugin:
        yield told(
            (*path, "defaultDevicePlugin"),
            True,
            f"the device plugin would have two owners: GKE and the GPU Operator; {why}",
            "write false, or imageType: COS_CONTAINERD",
        )


def _passed_on(path: Path, gke: GkeSettings) -> Iterator[Told]:
    here: Path = (*path, "nodePoolArgs")
    yield from provider_arguments.problems(RESOURCE, gke.node_pool_args, here, DECIDED)
    if "placementPolicy" in gke.node_pool_args and not gke.compact_placement:
        yield told(
            (*here, "placementPolicy"),
            None,
            "the only type of placement policy is the compact one, and compactPlacement is false",
            "write gke.compactPlacement: true, or remove it",
        )


def _run(path: Path, run: RunSettings, pool: GkeNodePoolSettings, draft: Draft) -> Iterator[Told]:
    accelerator = pool.gke.accelerator
    field = "requests" if run.requests.gpus is not None else "limits"
    if run.gpus > 1 and (accelerator.sharing or accelerator.partition):
        # GKE's plugin refuses more than one share (container-engine-accelerators,
        # gpusharing.ValidateRequest);
        # CUDA sees one MIG instance (NVIDIA MIG user guide, CUDA device enumeration).
        what = "share of a GPU" if accelerator.sharing else "partition of a GPU"
        yield told(
            (*path, field, "gpus"),
            run.gpus,
            f'one nvidia.com/gpu of pool "{pool.name}" is a {what}, and a Pod can not use more than one of'
            " them",
            "write 1, or name a pool with whole GPUs",
        )
    others = {other.team for other in draft.runs.values() if other.pool == pool.name} - {run.team}
    if accelerator.sharing and others:
        yield told(
            (*path, "pool"),
            run.pool,
            f'its GPUs are shared without any isolation of memory or faults, and team "{min(others)}" has'
            " runs there too",
            "give each team a pool of its own, or remove gke.accelerator.sharing from the pool",
        )
