"""Reads from one explicit cluster. Everything comes back as plain dicts, as `kubectl get -o json` prints it.

Only the Kubernetes client's connection (kubeconfig, tokens, certificates) is used, not its typed models: they
are slow to make and differ between its releases, and a saved `kubectl get -o json` must look the same to us.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.stacks import Target

PAGE = 500
TIMEOUT_SECONDS = (5.0, 30.0)  # connect, read
RUN_LABEL = "holdfast.dev/run"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"


class Kube:
    """A thin reader. Errors are the Kubernetes client's; ops.errors turns them into sentences."""

    def __init__(self, target: Target) -> None:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException

        path = Path(target.kubeconfig).expanduser()
        if not path.is_file():
            raise OpsError(
                f"The kubeconfig {path} does not exist.",
                "Correct holdfast:cluster.kubeconfig in the stack's file (for the rehearsal: ./holdfast up).",
                ExitCode.UNAVAILABLE,
            )
        settings = client.Configuration()
        settings.retries = False  # a server that is down is told once, not after three tries with warnings
        try:
            self._api = config.new_client_from_config(
                config_file=str(path), context=target.context, client_configuration=settings
            )
        except ConfigException as error:
            raise OpsError(
                f"The kubeconfig {path} has no usable context {target.context!r}: {error}",
                "Correct holdfast:cluster.context in the stack's file.",
                ExitCode.USAGE,
            ) from None

    def version(self) -> str:
        return str(self._json("/version", {}).get("gitVersion", ""))

    def jobs(self, selector: str = RUN_LABEL) -> list[dict[str, Any]]:
        return self._list("/apis/batch/v1/jobs", labelSelector=selector)

    def job(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")

    def job_sets(self, selector: str = RUN_LABEL) -> list[dict[str, Any]]:
        """All JobSets with the label; none where JobSet is not installed."""
        return self._list(f"{JOB_SETS}/jobsets", missing_ok=True, labelSelector=selector)

    def job_set(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.get(f"{JOB_SETS}/namespaces/{namespace}/jobsets/{name}")

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        return self._list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)

    def events(self, namespace: str) -> list[dict[str, Any]]:
        return self._list(f"/api/v1/namespaces/{namespace}/events")

    def nodes(self) -> list[dict[str, Any]]:
        return self._list("/api/v1/nodes")

    def quotas(self, selector: str = "") -> list[dict[str, Any]]:
        return self._list("/api/v1/resourcequotas", labelSelector=selector)

    def daemon_sets(self, namespace: str) -> list[dict[str, Any]]:
        return self._list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets")

    def get(self, path: str, **query: str) -> dict[str, Any] | None:
        """Any one object or list by its API path; None where it, or its kind, does not exist."""
        return self._json(path, query, missing_ok=True)

    def log(self, namespace: str, pod: str, container: str = "trainer", tail: int | None = None) -> str:
        """The container's log; empty where it has not started or its Pod is gone."""
        query = {"container": container, **({"tailLines": tail} if tail else {})}
        answer = self._request(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query, TIMEOUT_SECONDS)
        if answer.status in (400, 404):  # 400: the container waits to start
            answer.read()
            return ""
        return self._body(answer).decode(errors="replace")

    def follow_log(self, namespace: str, pod: str, container: str = "trainer") -> Iterator[str]:
        """The container's log line by line until it ends; the container must have started."""
        query = {"container": container, "follow": "true"}
        answer = self._request(
            f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query, (TIMEOUT_SECONDS[0], None)
        )
        if answer.status >= 400:
            self._body(answer)
        rest = b""
        for chunk in answer.response.stream(2048):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")

    def _list(self, path: str, missing_ok: bool = False, **query: Any) -> list[dict[str, Any]]:
        """All items, read in pages, so that a large cluster is never asked for everything at once.

        `missing_ok`: a kind that the API server does not know has no items.
        """
        found: list[dict[str, Any]] = []
        wanted = {"limit": PAGE, **{key: value for key, value in query.items() if value}}
        while True:
            body = self._json(path, wanted, missing_ok) or {}
            found.extend(body.get("items") or [])
            token = (body.get("metadata") or {}).get("continue")
            if not token:
                return found
            wanted = {**wanted, "continue": token}

    def _json(self, path: str, query: Mapping[str, Any], missing_ok: bool = False) -> Any:
        answer = self._request(path, query, TIMEOUT_SECONDS)
        if missing_ok and answer.status == 404:
            answer.read()
            return None
        return json.loads(self._body(answer))

    def _request(self, path: str, query: Mapping[str, Any], timeout: tuple[float, float | None]) -> Any:
        method, url, headers, _body, _post = self._api.param_serialize(
            method="GET",
            resource_path=quote(path),
            query_params=list(query.items()),
            header_params={"Accept": "application/json, */*"},
            auth_settings=["BearerToken"],
        )
        return self._api.rest_client.request(method, url, headers=headers, _request_timeout=timeout)

    def _body(self, answer: Any) -> bytes:
        from kubernetes.client.exceptions import ApiException

        data = answer.read()
        if answer.status >= 400:
            raise ApiException(status=answer.status, reason=answer.reason, body=data.decode(errors="replace"))
        return data
