"""The GPU Operator's values agree with the node profile: the row of the ownership table for these nodes.

The profile comes from the clouds' node pools, whose resources show what the nodes bring. Nothing shows that
of a self-managed node: there the pack's configuration says it, or a label of the operator's Namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import Severity

from rules import charts
from rules.engine import Config, Resource, Violation, of_kubernetes, stack_policy
from rules.installs import Install, installs
from rules.node_pools import NodePool, is_pool_type, node_pools
from rules.owners import LAYERS, Owner, owners
from rules.pods import may_have_pods
from rules.profile_values import SWITCHED, judge_name, judge_others, judge_values
from rules.table import OPERATOR, eks_profile, gke_profile, profiles
from rules.views import View

PROFILE_LABEL = "holdfast.dev/node-profile"
PROFILE_SETTING = "nodeProfile"
OVERRIDE_ANNOTATION = "holdfast.dev/ownership-override"
"""On the operator's Namespace: the reason for which its values differ from the pools' rows on purpose."""

# A Patch gives its labels to a Namespace that somebody else made.
_NAMESPACES = frozenset({"kubernetes:core/v1:Namespace", "kubernetes:core/v1:NamespacePatch"})
_GKE_INSTALLS = frozenset({"DEFAULT", "LATEST"})
# Without CDI in the kubelet before this version of Kubernetes (amazon-eks-ami#2173).
_EKS_CDI = (1, 32)


def check_profile(resources: Sequence[Resource], config: Config) -> Iterator[Violation]:
    """Every operator against its profile, and other owners on nodes that have an owner already."""
    configured = config.get(PROFILE_SETTING)
    labels = _labelled(resources)
    for _, label in labels:
        if label.unknown:
            label.note()
    every_install, every_owner, every_pool = installs(resources), owners(resources), node_pools(resources)
    overridden = _overridden(resources)
    clusters = {r.cluster for r in resources if of_kubernetes(r.type)} | {p.cluster for p in every_pool}
    for cluster in sorted(clusters):
        here = [(r, _text(label)) for r, label in labels if r.cluster == cluster and _text(label)]
        found = [install for install in every_install if install.resource.cluster == cluster]
        others = [owner for owner in every_owner if owner.cluster == cluster]
        judged: set[str] = set()
        for install in found:
            for name in _profile_names(install, configured, here):
                judged.add(name)
                yield from judge_values(name, install)
        urns = {name: r.urn for r, name in here}
        declared = [configured] if configured else sorted(urns)
        for name in declared:
            if name not in judged and (urns or others):
                yield from judge_name(name, urns.get(name))
            if name in profiles():
                yield from judge_others(profiles()[name], others, found)
        pools = [pool for pool in every_pool if pool.cluster == cluster]
        if pools or declared:
            charts.note_unnamed_charts(resources, {cluster})
        if pools:
            operators = {install.resource.urn for install in found}
            free = [i for i in found if (cluster, i.namespace.peek_text()) not in overridden]
            yield from _judge_pools(pools, declared, free, [o for o in others if o.urn not in operators])


def _judge_pools(
    pools: Sequence[NodePool], declared: Sequence[str], found: Sequence[Install], others: Sequence[Owner]
) -> Iterator[Violation]:
    """The pools of one cluster: each by itself, all under one operator, and the operator by their row."""
    installer = "gke-cos-installer" in declared or any(
        o.layer == "driver" and o.unknown is None for o in others
    )
    rows: list[tuple[NodePool, str]] = []
    for pool in pools:
        for view in pool.hidden:
            view.note()
        name = None if pool.hidden else _row_of(pool, installer)
        if name is None:
            yield from () if pool.hidden else _judge_without_row(pool, found)
            continue
        reject = profiles()[name].reject
        if reject and pool.image == "managed":  # right by itself: what it can not have is an operator
            reject = reject if found and pool.takes_operands else None
        if reject:
            yield Violation(f"{pool.title}{_by_default(pool)}: {reject}", pool.resource.urn)
        elif not profiles()[name].reject:
            rows.append((pool, name))
    for pool, name in rows:
        reaching = [o for o in others if pool.may_run(o.nodes, o.tolerations)]
        if name not in declared:
            yield from judge_others(profiles()[name], reaching, found, pool.title)
    served = [(pool, name) for pool, name in rows if _is_served(pool, name, found)]
    if served and found:
        yield from _judge_operators(served, declared, found)


def _is_served(pool: NodePool, name: str, found: Sequence[Install]) -> bool:
    """Whether operands come to the pool. Where the nodes bring everything, a taint may keep them away."""
    if not pool.takes_operands or profiles()[name].owners["nfd"] is not None:
        return pool.takes_operands
    return any(not pool.untolerated(install.operand_tolerations) for install in found)


def _judge_operators(
    served: Sequence[tuple[NodePool, str]], declared: Sequence[str], found: Sequence[Install]
) -> Iterator[Violation]:
    first, name = served[0]
    for pool, other in served[1:]:
        if _operator_owns(other) != _operator_owns(name):
            yield Violation(
                f"{first.title} (profile '{name}': {_owners_in_words(name)}) and {pool.title} (profile"
                f" '{other}': {_owners_in_words(other)}) are served by one operator, {found[0].title},"
                " whose settings are the same for all nodes. Give the pools the same kind of image, keep"
                " the operator off one of them by the node label"
                ' nvidia.com/gpu.deploy.operands: "false", or use a cluster of its own for it.',
                pool.resource.urn,
            )
            return
    said = [each for each in declared if each in profiles() and not profiles()[each].reject]
    for each in said:
        if _operator_owns(each) != _operator_owns(name):
            yield Violation(
                f"{first.title} has nodes of profile '{name}' ({_owners_in_words(name)}), but the operator is"
                f" told that they are '{each}' ({_owners_in_words(each)}). {profiles()[name].reason} Write"
                f" '{name}' in place of '{each}', or change the pool.",
                first.resource.urn,
            )
    if said:
        return
    for install in found:
        cos = next((pool for pool, _ in served if pool.image.startswith("COS")), None)
        reject = profiles()["gke-cos-operator-driver"].reject
        if cos and reject and install.effective("driver.enabled") is True:
            yield Violation(f"{install.title} on the nodes of {cos.title}: {reject}", install.resource.urn)
            continue
        yield from judge_values(name, install, first.title, _has_no_cdi(first))


def _row_of(pool: NodePool, installer: bool) -> str | None:
    if pool.platform == "eks":
        return eks_profile(pool.image)
    if pool.platform == "gke":
        return gke_profile(pool.image, pool.driver, pool.default_device_plugin, installer)
    if pool.image == "managed":
        return "aks-managed"
    return "aks-no-driver" if pool.driver == "None" else "aks-image"


def _judge_without_row(pool: NodePool, found: Sequence[Install]) -> Iterator[Violation]:
    """GKE's own driver and device plugin have an owner also on images that the table has no row for."""
    if pool.platform != "gke" or not pool.takes_operands:
        return
    for install in found:
        if pool.driver in _GKE_INSTALLS and install.effective("driver.enabled") is True:
            yield Violation(
                f"{pool.title}{_by_default(pool)}: GKE installs the driver there (gpuDriverVersion"
                f" {pool.driver}), and {install.title} would be a second owner. Set driver.enabled=false, or"
                " gpuDriverVersion: INSTALLATION_DISABLED and the node label"
                ' gke-no-default-nvidia-gpu-device-plugin: "true".',
                pool.resource.urn,
            )
        elif pool.default_device_plugin and install.effective("devicePlugin.enabled") is True:
            yield Violation(
                f"{pool.title}: GKE runs its own device plugin there, and {install.title} would be a second"
                " owner. Set devicePlugin.enabled=false, or give the pool the node label"
                ' gke-no-default-nvidia-gpu-device-plugin: "true".',
                pool.resource.urn,
            )


def _by_default(pool: NodePool) -> str:
    if pool.platform != "gke" or not pool.driver_is_default:
        return ""
    return f" (no gpuDriverVersion is set, so GKE takes {pool.driver})"


def _operator_owns(name: str) -> tuple[bool, ...]:
    return tuple(profiles()[name].owners[layer] == OPERATOR for layer in SWITCHED)


def _owners_in_words(name: str) -> str:
    owned = profiles()[name].owners
    return ", ".join(f"{LAYERS[layer]}: {owned[layer] or 'nobody'}" for layer in SWITCHED)


def _has_no_cdi(pool: NodePool) -> bool:
    version = pool.resource.props["version"].peek_text() or ""
    parts = version.split(".")
    if pool.platform != "eks" or len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return False
    return (int(parts[0]), int(parts[1])) < _EKS_CDI


def _overridden(resources: Sequence[Resource]) -> set[tuple[str, str | None]]:
    """Cluster and name of the Namespaces whose annotation gives the reason for other values."""
    found = set()
    for r in resources:
        if r.type in _NAMESPACES:
            metadata = r.props["metadata"]
            if (metadata["annotations"][OVERRIDE_ANNOTATION].peek_text() or "").strip():
                found.add((r.cluster, metadata["name"].peek_text()))
    return found


def _text(view: View) -> str:
    return view.peek_text() or ""


def _labelled(resources: Sequence[Resource]) -> list[tuple[Resource, View]]:
    namespaces = [r for r in resources if r.type in _NAMESPACES]
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


def _wants(type_: str) -> bool:
    return type_ in _NAMESPACES or is_pool_type(type_) or charts.may_be_chart(type_) or may_have_pods(type_)


PROFILE_AGREEMENT = stack_policy(
    name="node-profile-agreement",
    description="The GPU Operator's values agree with the ownership table's row for the nodes.",
    severity=Severity.CRITICAL,
    remediation=(
        "Take the values of the profile's row in ownership.json. Node pools of EKS, GKE and AKS show their"
        f" profile; for other nodes name it by the label {PROFILE_LABEL} on the operator's Namespace, or by"
        f" {PROFILE_SETTING} in the pack's configuration. Where values differ on purpose, the annotation"
        f" {OVERRIDE_ANNOTATION} on that Namespace says why."
    ),
    check=check_profile,
    wants=_wants,
    settings={
        PROFILE_SETTING: {
            "type": "string",
            "description": ("The node profile (a row of ownership.json); wins over the Namespace's label."),
        }
    },
)
