"""One GPU Operator, and other owners, against one row of the ownership table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rules.engine import Violation
from rules.installs import Install
from rules.owners import LAYERS, Owner
from rules.table import OPERATOR, Profile, leaves, profiles, unknown_profile

INSTALLER = "driver installer DaemonSet"
# The layers that the operator's values switch. NFD may belong to the operator or be there already.
SWITCHED = ("driver", "toolkit", "devicePlugin")
# Of the rest of a row these must agree; the validator's and the MIG manager's settings are the user's choice.
_MUST_AGREE = ("operator.runtimeClass", "hostPaths.driverInstallDir", "toolkit.installDir", "toolkit.env")


def judge_name(name: str, urn: str | None) -> Iterator[Violation]:
    profile = profiles().get(name)
    if profile is None:
        yield Violation(f"{unknown_profile(name)}.", urn)
    elif profile.reject:
        yield Violation(f"node profile '{name}' can not work. {profile.reject}", urn)


def judge_values(
    name: str, install: Install, pool: str = "", handlers_are_known: bool = True
) -> Iterator[Violation]:
    """Every value of an operator that disagrees with the row `name`; `pool` is the node pool that the row
    was told by, if it was one. `handlers_are_known`: without the operator's toolkit no node of the profile
    has CDI handlers, for certain.
    """
    urn = install.resource.urn
    refused = list(judge_name(name, urn))
    yield from refused
    if refused:
        return
    profile = profiles()[name]
    where = f"profile '{name}'" + (f" ({pool})" if pool else "")
    for layer in SWITCHED:
        problem = _problem_of_switch(profile, layer, install, where)
        if problem:
            yield Violation(problem, urn)
    wanted = dict(leaves(profile.values))
    cdi_is_wrong = wanted.get("cdi.enabled") is False and handlers_are_known
    if cdi_is_wrong and _known(install, "cdi.enabled") not in (None, False):
        yield Violation(
            f"{install.title}: cdi.enabled is true{_if_default(install, 'cdi.enabled')}, but nodes of"
            f" {where} have no handlers for the RuntimeClasses nvidia-cdi and nvidia-legacy that"
            " it creates. Set cdi.enabled=false.",
            urn,
        )
    for key in _MUST_AGREE:
        if key in wanted and not _agrees(wanted[key], install, key):
            yield Violation(
                f"{install.title}: {key} is {_shown(install, key)}, but {where} needs"
                f" {_show(wanted[key])}. {profile.reason} Set {key} to {_show(wanted[key])}.",
                urn,
            )


def _problem_of_switch(profile: Profile, layer: str, install: Install, where: str) -> str | None:
    key = f"{layer}.enabled"
    actual = _known(install, key)
    if actual is None:
        return None
    if not isinstance(actual, bool):
        return (
            f"{install.title}: {key} is {_show(actual)}, which is neither true nor false. Write true or"
            " false."
        )
    owner = profile.owners[layer]
    wanted = owner == OPERATOR
    if actual == wanted:
        return None
    what = LAYERS[layer]
    if layer == "driver" and install.has_driver_objects:
        key = "driver.nvidiaDriverCRD.enabled" if install.by_chart else "driver.useNvidiaDriverCRD"
    if actual:
        consequence = f"the {what} belongs to: {owner}. The operator would be a second owner"
    else:
        consequence = f"the {what} belongs to the operator, so that nobody would bring it"
    return (
        f"{install.title}: {key} is {_show(actual)}{_if_default(install, key)}, but on nodes of {where}"
        f" {consequence}. {profile.reason} Set {key}={_show(wanted)}."
    )


def _known(install: Install, key: str) -> Any:
    """The value in force, or None (and noted) when it is not known yet."""
    install.setting(key).value()
    return install.effective(key)


def _if_default(install: Install, key: str) -> str:
    return "" if install.setting(key).exists else " (the chart's default)"


def _agrees(wanted: Any, install: Install, key: str) -> bool:
    setting = install.setting(key)
    if not isinstance(wanted, list):
        actual = _known(install, key)
        return actual == wanted or setting.unknown
    elements = setting.elements()
    if setting.unknown or any(e.unknown or e["name"].unknown or e["value"].unknown for e in elements):
        for element in elements:
            element["name"].value(), element["value"].value()
        return True
    actual_list = [{"name": e["name"].peek(), "value": str(e["value"].peek())} for e in elements]
    return all(item in actual_list for item in wanted)


def _shown(install: Install, key: str) -> str:
    actual = install.effective(key)
    if isinstance(actual, str):
        return f"'{actual}'{_if_default(install, key)}"
    return "not set" if not install.setting(key).exists else "different"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(f"{item['name']}={item['value']}" for item in value)
    return f"'{value}'"


def judge_others(
    profile: Profile, others: Sequence[Owner], found: Sequence[Install], pool: str = ""
) -> Iterator[Violation]:
    """Installers and plugins beside the operator, where the layer belongs to host, image or cloud.

    Where the layer is the operator's to bring, a plain device plugin in its place is still one owner.
    """
    operators = {install.resource.urn for install in found}
    for owner in others:
        holder = profile.owners.get(owner.layer)
        if owner.urn in operators or owner.layer == "nfd" or holder in (None, OPERATOR):
            continue
        if owner.layer == "driver" and holder == INSTALLER:
            continue
        if owner.unknown is not None:
            owner.unknown.note()
            continue
        yield Violation(
            f"{owner.title} brings a {LAYERS[owner.layer]}, but on nodes of profile"
            f" '{profile.name}'{f' ({pool})' if pool else ''} it belongs to: {holder}. {profile.reason}"
            f" Remove {owner.title}, or correct the node profile.",
            owner.urn,
        )
