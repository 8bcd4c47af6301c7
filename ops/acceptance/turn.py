"""One acceptance at a time in a namespace: a Lease that only one can create.

A look at what is there is not enough: two that look at the same moment both see nothing.
https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from ops.acceptance.recorder import ACCEPTANCE_LABEL
from ops.errors import describe

NAME = "holdfast-acceptance"


class Api(Protocol):
    """What is needed of a cluster; ops.acting.ActingKube has it."""

    def get(self, path: str, **query: str) -> dict[str, Any] | None: ...
    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...
    def delete(self, path: str, **options: Any) -> bool: ...


class Taken(Exception):
    """Another acceptance was quicker; `holder` is its id."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"Acceptance {holder} has its turn.")
        self.holder = holder


def leases(namespace: str) -> str:
    """The API path of a namespace's Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def holder(api: Api, namespace: str) -> str:
    """The id of the acceptance whose turn it is, or that was killed in it; empty where there is none."""
    found = api.get(f"{leases(namespace)}/{NAME}") or {}
    return str((found.get("spec") or {}).get("holderIdentity", ""))


def give_back(api: Api, namespace: str, acceptance: str) -> list[str]:
    """End that acceptance's turn, if it has one. Nothing raises: what is left is told."""
    try:
        if holder(api, namespace) == acceptance:
            api.delete(f"{leases(namespace)}/{NAME}")
    except Exception as error:  # told, so that the rest is removed all the same
        return [f"Lease {namespace}/{NAME} is left: {describe(error)[0].splitlines()[0]}"]
    return []


@contextmanager
def turn(api: Api, namespace: str, acceptance: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the turn; given back in every way out. Raises Taken where another acceptance has it."""
    from kubernetes.client.exceptions import ApiException

    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "labels": {ACCEPTANCE_LABEL: acceptance}},
        "spec": {"holderIdentity": acceptance},
    }
    try:
        api.create(leases(namespace), lease)
    except ApiException as error:
        if error.status != 409:
            raise
        raise Taken(holder(api, namespace) or "that ended just now") from None
    try:
        yield
    finally:
        for problem in give_back(api, namespace, acceptance):
            tell(problem)
