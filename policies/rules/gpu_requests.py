"""GPU request = limit = a whole number, for each container on its own. 0 is Kubernetes' way to say none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_policy import Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.pods import is_gpu, may_have_pods, workloads
from rules.quantity import parse, show
from rules.quota_keys import right_name
from rules.views import View


def problem_of_amount(section: str, name: str, amount: Any) -> str | None:
    """What is wrong with one amount of the GPU resource `name` by itself; None: the amount is missing."""
    if amount is None:
        return None
    number = parse(amount)
    if number is None:
        return f"{section}.{name} is '{show(amount)}', which is no quantity; write a whole number such as 1"
    if number != number.to_integral_value():
        return (
            f"{section}.{name} is '{show(amount)}': GPUs are not divisible; write a whole number, or ask"
            " for a MIG slice by its own resource name"
        )
    if number < 0:
        return f"{section}.{name} is {show(amount)}: remove the line, or ask for 1 or more"
    return None


def problem_of_amounts(name: str, limit: Any, request: Any) -> str | None:
    """What is wrong with limit and request together; None stands for a missing amount.

    Extended resources can not be overcommitted: Kubernetes wants the limit, takes the request from it when it
    is missing, and refuses fractions.
    """
    if limit is None:
        return (
            f"requests.{name} is {show(request)} but limits.{name} is missing; state the limit (the request"
            " follows)"
        )
    alone = problem_of_amount("limits", name, limit) or problem_of_amount("requests", name, request)
    if alone is None and request is not None and parse(request) != parse(limit):
        return (
            f"requests.{name} is {show(request)} but limits.{name} is {show(limit)}: they must be equal,"
            " since GPUs can not be overcommitted"
        )
    return alone


def check_gpu_requests(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every container, init containers and sidecars too; and no GPUs in the resources of the whole Pod."""
    for workload in workloads(resource):
        for container in workload.containers():
            resources = container.view["resources"]
            for problem in _problems(resources):
                yield Violation(f"{workload.title}, container '{container.name}': {problem}.")
        pod_level = workload.spec["resources"]
        names = {
            key for section in ("limits", "requests") for key in pod_level[section].keys() if is_gpu(key)
        }
        for name in sorted(names):
            yield Violation(
                f"{workload.title}: {name} stands in the resources of the whole Pod, where Kubernetes takes"
                " only cpu, memory and hugepages; set it on the container that uses the GPU."
            )


def _problems(resources: View) -> Iterator[str]:
    limits, requests = resources["limits"], resources["requests"]
    for name in dict.fromkeys([*limits.keys(), *requests.keys()]):
        right = right_name(name) if name.startswith(("nvidia.com/", "nvidia/")) else None
        if right not in (None, name):
            yield f"nobody advertises {name}, so that the Pod stays Pending; write {right}"
            continue
        if not is_gpu(name):
            continue
        limit, request = limits[name], requests[name]
        if limit.unknown or request.unknown:
            # One known amount can already be wrong by itself, whatever the other will be.
            problem = problem_of_amount("limits", name, limit.value()) or problem_of_amount(
                "requests", name, request.value()
            )
        else:
            problem = problem_of_amounts(name, limit.value(), request.value())
        if problem:
            yield problem


WHOLE_GPUS = resource_policy(
    name="whole-gpus",
    description="A container's GPU request equals its limit and is a whole number.",
    severity=Severity.HIGH,
    remediation=(
        "Set resources.limits of the container to a whole number, for example nvidia.com/gpu: 1, and leave"
        " the request out or set it to the same number. For a part of a GPU use a MIG resource"
        " (nvidia.com/mig-1g.10gb)."
    ),
    check=check_gpu_requests,
    wants=may_have_pods,
)
