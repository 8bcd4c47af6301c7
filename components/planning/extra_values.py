"""Judging the chart values that a site adds: merged, they must leave every layer with exactly one owner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from components.planning.merge import MISSING, at, deep_merge, leaves, stated
from components.planning.operator_values import TOLERATION_PATHS, is_on, own_values, tolerates
from components.planning.ownership import LAYER_TITLES, OPERATOR, Profile, owner_title, profiles
from components.settings.consistency import Told, told
from components.settings.explain import closest, kind_of
from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.node_pool import NodePoolSettings

ROOT = ("gpuOperator", "extraValues")
_SWITCHED = ("driver", "toolkit", "devicePlugin")
# Top-level keys of chart v26.7.0.
SECTIONS = tuple(
    "ccManager cdi clusterPolicy daemonsets dcgm dcgmExporter devicePlugin draDriver driver extraObjects"
    " gdrcopy gds gfd gpuCluster hostPaths kataManager kataSandboxDevicePlugin mig migManager nfd"
    " node-feature-discovery nodeStatusExporter operator platform psa sandboxDevicePlugin sandboxWorkloads"
    " toolkit validator vfioManager vgpuDeviceManager vgpuManager".split()
)
# Maps whose own keys may have dots.
_FREE_KEYS = frozenset(
    "labels annotations nodeSelector data matchLabels podSelector additionalLabels featureGates".split()
)
# Path -> the value that everything here is built on, and why.
_FIXED = {
    ("clusterPolicy", "deployCR"): (True, "the stack judges readiness by the ClusterPolicy and its operands"),
    ("gpuCluster", "deployCR"): (
        False,
        (
            "a GPUCluster advertises GPUs by a DRA driver, and a pool's GPUs are advertised by a device"
            " plugin or by a DRA driver, never both"
        ),
    ),
}


def problems(
    settings: GpuOperatorSettings, profile: Profile, pools: Sequence[NodePoolSettings]
) -> list[Told]:
    """Every way in which the site's values break the ownership that the pools' profile states."""
    extra = settings.extra_values
    found = [*_shapes(extra)]
    unusable = {path[len(ROOT)] for path, _ in found if len(path) == len(ROOT) + 1}
    extra = {key: value for key, value in extra.items() if key not in unusable}
    own = own_values(profile, pools, settings.nfd)
    merged = deep_merge(own, extra)
    for layer in _SWITCHED:
        found += _layer(layer, extra, merged, profile, pools)
    found += _nfd(extra, merged, settings, profile, pools)
    found += _driver_objects(extra, merged, profile, pools)
    found += _row(extra, merged, profile)
    for path, (wanted, why) in _FIXED.items():
        given = stated(extra, path)
        if given and (at(merged, path, wanted) is None or is_on(at(merged, path, wanted)) is not wanted):
            found.append(_told(given, extra, why, f"remove {'.'.join(given)} from extraValues"))
    return found


def warnings(settings: GpuOperatorSettings, profile: Profile, pools: Sequence[NodePoolSettings]) -> list[str]:
    """What shows at readiness only: operands that do not tolerate a taint, keys that the chart lacks."""
    extra = settings.extra_values
    merged = deep_merge(own_values(profile, pools, settings.nfd), extra)
    found = []
    for path in TOLERATION_PATHS:
        if path[0] == "node-feature-discovery" and settings.nfd != "operator":
            continue
        for pool, taint in ((pool, taint) for pool in pools for taint in (pool.taint, *pool.startup_taints)):
            if not tolerates(at(merged, path), taint):
                found.append(
                    f"gpuOperator.extraValues.{'.'.join(path)} does not tolerate the taint {taint} of"
                    " pool "
                    f'"{pool.name}": its nodes will never get these Pods and never become ready. '
                    "Add a toleration of that taint to the list, or remove the list."
                )
    # A chart in a folder of the site's own, as the rehearsal's, may have values that NVIDIA's has not.
    for key in extra if settings.chart.path is None else ():
        if key not in (*SECTIONS, "global") and "." not in key:
            found.append(
                f"gpuOperator.extraValues.{key}: chart v26.7.0 of the GPU Operator has no such value."
            )
    return found


def _told(path: tuple[str, ...], extra: Mapping[str, Any], reason: str, fix: str) -> Told:
    value = at(extra, path)
    where, problem = told((*ROOT, *path), None if isinstance(value, (Mapping, list)) else value, reason, fix)
    return where, replace(problem, value="null") if value is None else problem


def _shapes(extra: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[Told]:
    for key, value in extra.items():
        path = (*prefix, key)
        dotted = re.fullmatch(r"[\w-]+(\.[\w-]+)+", key)
        if dotted and not (prefix and prefix[-1] in _FREE_KEYS):
            nested = "".join(f"{{{part}: " for part in key.split(".")) + "…" + "}" * len(key.split("."))
            yield told(
                (*ROOT, *path),
                None,
                "Helm takes this as one key with dots in its name, so it would have no effect",
                f"write it nested: {nested[1:-1]}",
            )
        elif not prefix and key not in SECTIONS and (meant := closest(key, SECTIONS)):
            yield told(
                (*ROOT, key),
                None,
                "the chart has no such value, so it would have no effect",
                f"did you mean {meant}?",
            )
        elif (
            len(prefix) == 1
            and prefix[0] in (*_SWITCHED, "nfd", "cdi")
            and key != "enabled"
            and closest(key, ["enabled"])
        ):
            yield told(
                (*ROOT, *path),
                None,
                "the chart has no such value, so it would have no effect",
                "did you mean enabled?",
            )
        elif (
            not prefix
            and key in SECTIONS
            and key != "extraObjects"
            and not isinstance(value, Mapping)
            and value is not None
        ):
            fix = "write a map with the settings of the section"
            if key in (*_SWITCHED, "nfd"):
                fix = "remove it; who owns this layer follows from the pool's profile and gpuOperator.nfd"
            yield told((*ROOT, key), None, f"it is {kind_of(value)}, and the chart has a map here", fix)
        elif path in TOLERATION_PATHS and not isinstance(value, list) and value is not None:
            yield told(
                (*ROOT, *path),
                None,
                f"it is {kind_of(value)}, and a list is needed",
                "begin each toleration with '- '",
            )
        elif isinstance(value, Mapping):
            yield from _shapes(value, path)


def _where(profile: Profile, pools: Sequence[NodePoolSettings]) -> str:
    names = " and ".join(f'"{pool.name}"' for pool in pools)
    return f"on pool {names} (profile {profile.name})"


def _others(profile: Profile, layer: str, *, operator: bool) -> str:
    names = [
        row.name
        for row in profiles().values()
        if row.status == "supported"
        and row.platform == profile.platform
        and row.install_operator
        and (row.owners[layer] == OPERATOR) is operator
        and row.name != profile.name
    ]
    title = LAYER_TITLES[layer]
    owner = f"whose {title} is the GPU Operator's" if operator else f"whose {title} has another owner"
    return (
        f", or give the pool a profile {owner}, if that is what its nodes are: {', '.join(names)}"
        if names
        else ""
    )


def _layer(
    layer: str,
    extra: Mapping[str, Any],
    merged: Mapping[str, Any],
    profile: Profile,
    pools: Sequence[NodePoolSettings],
) -> Iterator[Told]:
    given = stated(extra, (layer, "enabled"))
    if given is None:
        return
    value = at(merged, (layer, "enabled"))
    owner, title = profile.owners[layer], LAYER_TITLES[layer]
    wanted = owner == OPERATOR
    remove = f"remove {'.'.join(given)} from extraValues"
    null = " (null removes the value, and without it the layer is on)" if value is None else ""
    if is_on(value) and not wanted:
        reason = (
            f"the {title} would have two owners {_where(profile, pools)}: {owner_title(owner)} and the GPU"
            f" Operator{null}"
        )
        yield _told(given, extra, reason, remove + _others(profile, layer, operator=True))
    elif wanted and not is_on(value):
        reason = (
            f"the {title} would have no owner {_where(profile, pools)}: it is the GPU Operator's, and this"
            " turns it off"
        )
        yield _told(given, extra, reason, remove + _others(profile, layer, operator=False))
    elif value is not None and not isinstance(value, bool):
        yield _told(
            given,
            extra,
            f"it is {kind_of(value)}, and true or false is needed",
            f"write {str(wanted).lower()}, or {remove}",
        )


def _nfd(
    extra: Mapping[str, Any],
    merged: Mapping[str, Any],
    settings: GpuOperatorSettings,
    profile: Profile,
    pools: Sequence[NodePoolSettings],
) -> Iterator[Told]:
    given = stated(extra, ("nfd", "enabled"))
    if given is None:
        return
    value = at(merged, ("nfd", "enabled"))
    wanted = settings.nfd == OPERATOR
    where = _where(profile, pools)
    if is_on(value) and not wanted:
        reason = (
            f"Node Feature Discovery would have two owners {where}: the one that the cluster already has and"
            " the GPU Operator"
        )
        yield _told(
            given,
            extra,
            reason,
            "write gpuOperator.nfd: operator if the cluster has none, and remove nfd.enabled here",
        )
    elif wanted and not is_on(value):
        reason = (
            f"Node Feature Discovery would have no owner {where}: it is the GPU Operator's, and this turns"
            " it off"
        )
        yield _told(
            given,
            extra,
            reason,
            "write gpuOperator.nfd: existing if the cluster has its own, and remove nfd.enabled here",
        )
    elif not isinstance(value, bool):
        yield _told(
            given,
            extra,
            f"it is {kind_of(value)}, and true or false is needed",
            f"remove {'.'.join(given)} from extraValues",
        )


def _driver_objects(
    extra: Mapping[str, Any], merged: Mapping[str, Any], profile: Profile, pools: Sequence[NodePoolSettings]
) -> Iterator[Told]:
    path = ("driver", "nvidiaDriverCRD", "enabled")
    value = at(merged, path, False)
    if stated(extra, path) and value is not None and is_on(value) and profile.owners["driver"] != OPERATOR:
        owner = owner_title(profile.owners["driver"])
        reason = (
            "an NVIDIADriver object installs a driver whatever driver.enabled says: the driver would have"
            f" two owners {_where(profile, pools)}: {owner} and the GPU Operator"
        )
        yield _told(
            path,
            extra,
            reason,
            f"remove {'.'.join(path)} from extraValues{_others(profile, 'driver', operator=True)}",
        )


def _row(extra: Mapping[str, Any], merged: Mapping[str, Any], profile: Profile) -> Iterator[Told]:
    """Values that the profile states besides the switches: paths, RuntimeClass, CDI, environment."""
    for path, wanted in leaves(profile.values):
        given = stated(extra, path)
        if given is None or path in {(layer, "enabled") for layer in _SWITCHED}:
            continue
        value = at(merged, path, MISSING)
        if value == wanted or (
            isinstance(wanted, list) and isinstance(value, list) and all(item in value for item in wanted)
        ):
            continue
        need = f"must hold {_spell(wanted)}" if isinstance(wanted, list) else f"is {_spell(wanted)}"
        yield _told(
            given,
            extra,
            f"on profile {profile.name}, {'.'.join(path)} {need}. {profile.reason}",
            (
                f"write {_spell(wanted)} in the list"
                if isinstance(value, list) and isinstance(wanted, list)
                else f"remove {'.'.join(given)} from extraValues"
            ),
        )


def _spell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(
            f"{item['name']}={item['value']}" if isinstance(item, Mapping) and "name" in item else str(item)
            for item in value
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
