"""The rehearsal's API server, through the official client, as the admin identity."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any

import urllib3
import yaml
from kubernetes import client, config, dynamic
from kubernetes.client.exceptions import ApiException

from rehearsal.pki import CONTEXT
from rehearsal.state import state_dir

FIELD_MANAGER = "holdfast-rehearsal"


@functools.cache
def api_client() -> client.ApiClient:
    return config.new_client_from_config(str(state_dir() / "kubeconfig"), context=CONTEXT)


def core() -> client.CoreV1Api:
    return client.CoreV1Api(api_client())


def leases(namespace: str) -> dict[str, datetime]:
    """Lease name -> when its holder renewed it last; a node's lease is its heartbeat."""
    found = client.CoordinationV1Api(api_client()).list_namespaced_lease(namespace).items
    return {lease.metadata.name: lease.spec.renew_time for lease in found if lease.spec.renew_time}


def ready_problem() -> str:
    """Empty when /readyz answers ok; else a few words."""
    try:
        server = api_client().configuration.host
        answer = api_client().call_api("GET", f"{server}/readyz", header_params={}, _request_timeout=2)
        return "" if answer.status == 200 else f"the API server (it answers {answer.status})"
    except ApiException as error:
        return f"the API server (it answers {error.status})"
    except urllib3.exceptions.HTTPError:
        return "the API server, which does not answer"


def apply(manifests: str) -> None:
    """Server-side apply of every document of a YAML text."""
    dynamic_client = _dynamic()
    for document in yaml.safe_load_all(manifests):
        kind = dynamic_client.resources.get(api_version=document["apiVersion"], kind=document["kind"])
        dynamic_client.server_side_apply(
            kind,
            body=document,
            name=document["metadata"]["name"],
            namespace=document["metadata"].get("namespace"),
            field_manager=FIELD_MANAGER,
            force_conflicts=True,
        )


@functools.cache
def _dynamic() -> Any:
    return dynamic.DynamicClient(api_client())
