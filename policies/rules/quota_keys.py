"""A quota caps GPUs only by the key that Kubernetes counts: `requests.` and the resource's exact name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulumi_policy import Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.pods import is_gpu
from rules.quantity import parse, show
from rules.views import View

QUOTA = "kubernetes:core/v1:ResourceQuota"
# A Patch sets keys of an object that somebody else made; a Cohort of Kueue has quotas as a queue has.
_WRITTEN = re.compile(r"(kubernetes:core/v1:(?:ResourceQuota|LimitRange))(Patch|List)?")
_CLUSTER_QUEUE = re.compile(r"kubernetes:kueue\.x-k8s\.io/\w+:(ClusterQueue|Cohort)")
# Almost the name that the device plugin advertises; MIG slices have a point before the memory: mig-1g.10gb.
_ALMOST_GPU = re.compile(r"nvidia\.com/gpus?|nvidia\.com/nvidia-gpu|nvidia\.com/gpu-count", re.IGNORECASE)
_MIG = re.compile(r"nvidia\.com/mig-(\d+c\.)?\d+g\.\d+gb(\.me(\.all|-all)?|-me|\.gfx)?(\.shared)?")
# These scopes look at a Pod's deadline or class of service, which a GPU has no part in.
_SCOPES = frozenset({"BestEffort", "NotBestEffort", "Terminating", "NotTerminating"})
_PREFIXES = ("requests.", "limits.")


def check_quota_keys(resource: Resource, _config: Config) -> Iterator[Violation]:
    """ResourceQuotas, LimitRanges and Kueue's ClusterQueues that speak of GPUs."""
    written = _WRITTEN.fullmatch(resource.type)
    if written:
        check = _check_quota if written[1] == QUOTA else _check_limit_range
        for one in resource.props["items"].elements() if written[2] == "List" else [resource.props]:
            yield from check(resource.title, one["spec"])
    elif _CLUSTER_QUEUE.fullmatch(resource.type):
        yield from _check_queue(resource)


def problem_of_key(key: str) -> str | None:
    """Why a key of a quota caps no GPU although it is meant to, or None. With what to write instead."""
    prefix = next((p for p in _PREFIXES if key.startswith(p)), "")
    name = key.removeprefix(prefix)
    right = right_name(name)
    if right is None:
        return None
    if right != name:
        return f"nobody advertises {name}. Write requests.{right}"
    if prefix == "limits.":
        return f"Kubernetes counts extended resources by requests only. Write requests.{name}"
    if not prefix:
        return f"without `requests.` Kubernetes stores the line and counts nothing. Write requests.{name}"
    return None


def right_name(name: str) -> str | None:
    """The name of the GPU resource that is meant; None when no GPU is, or only a part of one.

    HAMi counts memory and cores of shared GPUs by itself, by keys of its own.
    """
    if name.startswith(("nvidia.com/gpumem", "nvidia.com/gpucores")):
        return None
    if name in ("gpu", "gpus", "nvidia-gpu") or re.fullmatch(r"nvidia[.\-/]gpus?", name):
        return "nvidia.com/gpu"
    if name.startswith("nvidia.com/mig-") and not _MIG.fullmatch(name):
        almost = re.fullmatch(r"nvidia\.com/mig-(\d+)g[-_.]?(\d+)gb?", name, re.IGNORECASE)
        return f"nvidia.com/mig-{almost[1]}g.{almost[2]}gb" if almost else name
    if _ALMOST_GPU.fullmatch(name):
        return "nvidia.com/gpu"
    return name if is_gpu(name) else None


def _check_quota(title: str, spec: View) -> Iterator[Violation]:
    hard = spec["hard"]
    of_gpus = []
    for key in hard.keys():
        problem = problem_of_key(key)
        if problem:
            yield Violation(f"{title}: hard.{key} caps nothing: {problem}.")
        elif right_name(key.removeprefix("requests.")) is not None:
            of_gpus.append(key)
            amount = hard[key].value()
            number = parse(amount)
            if amount is not None and (number is None or number < 0 or number != number.to_integral_value()):
                yield Violation(
                    f"{title}: hard.{key} is '{show(amount)}', which is no whole number of GPUs."
                    " Write 0 or more."
                )
    scopes = [scope.text() for scope in spec["scopes"].elements()]
    scopes += [e["scopeName"].text() for e in spec["scopeSelector"]["matchExpressions"].elements()]
    partial = [scope for scope in scopes if scope in _SCOPES]
    if of_gpus and partial:
        yield Violation(
            f"{title}: {of_gpus[0]} is capped in the scope {partial[0]} only, and Pods outside of"
            " it use GPUs without a limit. Put the GPUs into a quota without scopes."
        )


def _check_limit_range(title: str, spec: View) -> Iterator[Violation]:
    for limit in spec["limits"].elements():
        for section in ("default", "defaultRequest"):
            for key in limit[section].keys():
                if is_gpu(key):
                    yield Violation(
                        f"{title}: {section}.{key} gives a GPU to every container of the namespace"
                        " that asks for none, sidecars too. Remove the line; whoever needs a GPU asks for"
                        " it."
                    )


def _check_queue(resource: Resource) -> Iterator[Violation]:
    for group in resource.props["spec"]["resourceGroups"].elements():
        for covered in group["coveredResources"].elements():
            name = covered.text() or ""
            bare = name.removeprefix("requests.").removeprefix("limits.")
            right = right_name(bare)
            if right is not None and (bare != name or right != bare):
                yield Violation(
                    f"{resource.title}: coveredResources has {name}, which no Pod asks for, so the queue"
                    f" counts no GPU. Write {right}, as in a container's resources."
                )


def gpu_quota(hard: View) -> dict[str, View]:
    """The GPU resources that a quota caps, by the resource's name."""
    return {
        key.removeprefix("requests."): hard[key]
        for key in hard.peek_keys()
        if key.startswith("requests.") and is_gpu(key.removeprefix("requests."))
    }


QUOTA_KEYS_ENFORCE = resource_policy(
    name="quota-keys-enforce",
    description="A quota on GPUs uses the key that Kubernetes counts.",
    severity=Severity.HIGH,
    remediation=(
        "In a ResourceQuota write requests.nvidia.com/gpu (requests.nvidia.com/gpu.shared for renamed"
        " time-slices, requests.nvidia.com/mig-1g.10gb for slices), without scopes; in Kueue's ClusterQueue"
        " the resource's name alone; in a LimitRange nothing about GPUs."
    ),
    check=check_quota_keys,
    wants=lambda type_: bool(_WRITTEN.fullmatch(type_) or _CLUSTER_QUEUE.fullmatch(type_)),
)
