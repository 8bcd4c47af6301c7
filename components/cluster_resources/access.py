"""The few calls that the dynamic resources make, on JSON as the Kubernetes API speaks it, with errors in
sentences.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from components.cluster_resources.errors import ChangedMeanwhile, ClusterProblem, ClusterUnreachable

Json = dict[str, Any]

CONNECT_SECONDS = 5
READ_SECONDS = 30


class Cluster(Protocol):
    """A cluster by its API paths. `get` answers None for what does not exist."""

    def get(self, path: str, **query: str) -> Json | None: ...

    def patch(self, path: str, body: Json) -> Json | None:
        """JSON merge patch (RFC 7386). None: the object does not exist. A resourceVersion in it is a
        precondition.
        """

    def create(self, path: str, body: Json, **query: str) -> Json | None:
        """POST. None: what should hold the object does not exist, such as its namespace."""

    def delete(self, path: str, body: Json) -> Json | None: ...


class Reader(Protocol):
    """A cluster that is only read."""

    def get(self, path: str, **query: str) -> Json | None: ...


def items(cluster: Reader, path: str, **query: str) -> list[Json]:
    """The items of a list; an empty list where the API has no such kind (a CRD that is not installed yet)."""
    answer = cluster.get(path, **query)
    return list(answer.get("items") or []) if answer else []


def connect(kubeconfig: str, context: str) -> Cluster:
    """The cluster of one context of one kubeconfig file, never the current context.

    Raises `ClusterProblem` for a file or context that is not there; an unreachable cluster is told by the
    first call.
    """
    # Imported here: only the provider process needs it, and only when it really talks to a cluster.
    import yaml
    from kubernetes import client, config

    path = os.path.expanduser(kubeconfig)
    if not os.path.isfile(path):
        raise ClusterProblem(
            f"The kubeconfig file {kubeconfig} does not exist, so the cluster of context {context} can not "
            "be reached. Correct holdfast:cluster.kubeconfig, or create the cluster first (`./holdfast "
            "up` makes the rehearsal cluster)."
        )
    settings = client.Configuration()
    settings.retries = 1
    try:
        api = config.new_client_from_config(
            path, context=context, persist_config=False, client_configuration=settings
        )
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise ClusterProblem(
            f"The kubeconfig file {kubeconfig} gives no access by context {context}: {_short(error)}. "
            "Correct holdfast:cluster.kubeconfig or holdfast:cluster.context "
            "(`kubectl config get-contexts` lists the contexts of a file)."
        ) from None
    return _ApiCluster(api, kubeconfig, context)


class _ApiCluster:
    def __init__(self, api: Any, kubeconfig: str, context: str) -> None:
        self._api = api
        self._where = f"The cluster of context {context} in {kubeconfig}"

    def get(self, path: str, **query: str) -> Json | None:
        return self._call("GET", path, query=query)

    def patch(self, path: str, body: Json) -> Json | None:
        return self._call("PATCH", path, body=body, content_type="application/merge-patch+json")

    def create(self, path: str, body: Json, **query: str) -> Json | None:
        return self._call("POST", path, query=query, body=body, content_type="application/json")

    def delete(self, path: str, body: Json) -> Json | None:
        return self._call("DELETE", path, body=body, content_type="application/json")

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str | None = None,
    ) -> Json | None:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        # Plain JSON instead of the client's models: those drop the nulls of a merge patch, which are what
        # deletes a key.
        serialized = self._api.param_serialize(
            method=method,
            resource_path=target,
            query_params=[],
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._api.call_api(*serialized, _request_timeout=(CONNECT_SECONDS, READ_SECONDS))
            status, data = response.status, response.read()
        except ApiException as error:
            # Only TLS failures come this way, with status 0 (kubernetes/client/rest.py).
            raise self._unreachable(str(error.reason).replace("\n", ": ")) from None
        except (HTTPError, OSError) as error:
            raise self._unreachable(_short(error)) from None
        return self._judge(method, path, status, data)

    def _unreachable(self, why: str) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"{self._where} can not be reached: {why}. Start it (`./holdfast up` starts the rehearsal "
            "cluster) or correct holdfast:cluster."
        )

    def _judge(self, method: str, path: str, status: int, data: bytes | str | None) -> Json | None:
        if 200 <= status < 300:
            return json.loads(data or "{}")
        if status == 404:
            return None
        message = _message(data)
        if status == 409:
            raise ChangedMeanwhile(message)
        if status in (401, 403):
            needed = " (nodes: list and patch)" if path.startswith("/api/v1/nodes") else ""
            raise ClusterProblem(
                f"{self._where} refuses {method} {path}: {message or status}. "
                f"Use a context whose user may do this, or grant it{needed}.",
                message,
            )
        kind = ClusterUnreachable if status == 429 or status >= 500 else ClusterProblem
        raise kind(f"{self._where} answers {method} {path} with {status}: {message}.", message)


def _message(data: bytes | str | None) -> str:
    try:
        return str(json.loads(data or "{}").get("message", "")).rstrip(".")
    except (ValueError, AttributeError):
        return str(data)[:200]


def _short(error: Exception) -> str:
    """The cause of an error in one line; urllib3 nests it, YAML spreads it."""
    cause: BaseException = error
    while getattr(cause, "reason", None) is not None and isinstance(cause.reason, BaseException):
        cause = cause.reason
    text = " ".join(str(cause).split())
    return text.rsplit(": ", 1)[-1].rstrip(".") if "HTTPSConnection" in text else text.rstrip(".")
