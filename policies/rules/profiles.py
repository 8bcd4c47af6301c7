"""The GPU Operator's values agree with the node profile: the row of the ownership table for these nodes.

Nothing in a cluster's resources shows what a self-managed node's image brings. The profile comes from the
pack's configuration, or from a label of the operator's Namespace; without either this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pulumi_policy import Severity

from rules.engine import Config, Resource, Violation, stack_policy
from rules.installs import Install, installs
from rules.owners import LAYERS, Owner, owners
from rules.table import OPERATOR, Profile, leaves, profiles, unknown_profile
from rules.views import View

PROFILE_LABEL = "holdfast.dev/node-profile"
PROFILE_SETTING = "nodeProfile"

INSTALLER = "driver installer DaemonSet"
_NAMESPACE = "kubernetes:core/v1:Namespace"
# The layers that the operator's values switch. NFD may belong to the operator or be there already.
_SWITCHED = ("driver", "toolkit", "devicePlugin")
# Of the rest of a row these must agree; the validator's and the MIG manager's settings are the user's choice.
_MUST_AGREE = ("operator.runtimeClass", "hostPaths.driverInstallDir", "toolkit.installDir", "toolkit.env")


def check_profile(resources: Sequence[Resource], config: Config) -> Iterator[Violation]:
    """Every operator against its profile, and other owners on nodes that have an owner already."""
    configured = config.get(PROFILE_SETTING)
    labels = _labelled(resources)
    for _, label in labels:
        if label.unknown:
            label.note()
    every_install, every_owner = installs(resources), owners(resources)
    for cluster in sorted({r.cluster for r in resources}):
        here = [(r, _text(label)) for r, label in labels if r.cluster == cluster and _text(label)]
        found = [install for install in every_install if install.resource.cluster == cluster]
        others = [owner for owner in every_owner if owner.cluster == cluster]
        judged: set[str] = set()
        for install in found:
            for name in _profile_names(install, configured, here):
                judged.add(name)
                yield from _judge(name, install)
        urns = {name: r.urn for r, name in here}
        for name in [configured] if configured else sorted(urns):
            if name not in judged and (urns or others):
                yield from _judge_name(name, urns.get(name))
            if name in profiles():
                yield from _judge_others(profiles()[name], others, found)


def _text(view: View) -> str:
    return view.peek_text() or ""


def _labelled(resources: Sequence[Resource]) -> list[tuple[Resource, View]]:
    namespaces = [r for r in resources if r.type == _NAMESPACE]
    labels = [(r, r.props["metadata"]["labels"][PROFILE_LABEL]) for r in namespaces]
    return [(r, label) for r, label in labels if label.exists]


def _profile_names(
    install: Install, configured: str | None, labels: Sequence[tuple[Resource, str]]
) -> list[str]:
    """The pack's configuration; else the label of the operator's Namespace; else any label of its cluster."""
    if configured:
        return [configured]
    namespace = install.namespace.peek_text()
    own = [name for r, name in labels if namespace and r.props["metadata"]["name"].peek_text() == namespace]
    return own or sorted({name for _, name in labels})


def _judge_name(name: str, urn: str | None) -> Iterator[Violation]:
    profile = profiles().get(name)
    if profile is None:
        yield Violation(f"{unknown_profile(name)}.", urn)
    elif profile.reject:
        yield Violation(f"node profile '{name}' can not work. {profile.reject}", urn)


def _judge(name: str, install: Install) -> Iterator[Violation]:
    urn = install.resource.urn
    refused = list(_judge_name(name, urn))
    yield from refused
    if refused:
        return
    profile = profiles()[name]
    for layer in _SWITCHED:
        problem = _problem_of_switch(profile, layer, install)
        if problem:
            yield Violation(problem, urn)
    wanted = dict(leaves(profile.values))
    if wanted.get("cdi.enabled") is False and _known(install, "cdi.enabled") not in (None, False):
        yield Violation(
            f"{install.title}: cdi.enabled is true{_if_default(install, 'cdi.enabled')}, but nodes of"
            f" profile '{name}' have no handlers for the RuntimeClasses nvidia-cdi and nvidia-legacy that"
            " it creates. Set cdi.enabled=false.",
            urn,
        )
    for key in _MUST_AGREE:
        if key in wanted and not _agrees(wanted[key], install, key):
            yield Violation(
                f"{install.title}: {key} is {_shown(install, key)}, but profile '{name}' needs"
                f" {_show(wanted[key])}. {profile.reason} Set {key} to {_show(wanted[key])}.",
                urn,
            )


def _problem_of_switch(profile: Profile, layer: str, install: Install) -> str | None:
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
        f"{install.title}: {key} is {_show(actual)}{_if_default(install, key)}, but on nodes of profile "
        f"'{profile.name}' {consequence}. {profile.reason} Set {key}={_show(wanted)}."
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


def _judge_others(profile: Profile, others: Sequence[Owner], found: Sequence[Install]) -> Iterator[Violation]:
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
            f"{owner.title} brings a {LAYERS[owner.layer]}, but on nodes of profile '{profile.name}' it"
            f" belongs to: {holder}. {profile.reason} Remove {owner.title}, or correct the node profile.",
            owner.urn,
        )


PROFILE_AGREEMENT = stack_policy(
    name="node-profile-agreement",
    description="The GPU Operator's values agree with the ownership table's row for the nodes.",
    severity=Severity.CRITICAL,
    remediation=(
        "Take the values of the profile's row in ownership.json. Name the profile by the label "
        f"{PROFILE_LABEL} on the operator's Namespace, or by {PROFILE_SETTING} in the pack's configuration."
    ),
    check=check_profile,
    settings={
        PROFILE_SETTING: {
            "type": "string",
            "description": ("The node profile (a row of ownership.json); wins over the Namespace's label."),
        }
    },
)
