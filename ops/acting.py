"""A cluster that may be changed, for `accept` and `recover`. Plain dicts, as in ops.kube."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ops.kube import TIMEOUT_SECONDS, Kube
from ops.stacks import Target

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
EXEC_SECONDS = 60.0
CONNECTIONS = 32
WATCH_SECONDS = 60
"""The server ends a watch after this, so that a connection that died unnoticed costs no more."""


@dataclass(frozen=True)
class Answer:
    """What a command in a container said. `code` is None where its end was not told (it took the container
    with it, or the connection broke)."""

    code: int | None
    out: str
    err: str


class ActingKube(Kube):
    """Reads and writes. Errors are the Kubernetes client's; ops.errors turns them into sentences."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._target = target
        # Watches and logs hold a connection each; beyond the pool's size urllib3 warns at every one.
        self._api.rest_client.pool_manager.connection_pool_kw["maxsize"] = CONNECTIONS

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST to a collection, or to a subresource such as a Pod's `eviction`."""
        return json.loads(self._body(self._send("POST", path, body, JSON)) or b"{}")

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """JSON merge patch (RFC 7386). A resourceVersion in it is a precondition: 409 when it is not met."""
        return json.loads(self._body(self._send("PATCH", path, body, MERGE_PATCH)))

    def delete(self, path: str, **options: Any) -> bool:
        """False where it was gone already. `options`: those of DeleteOptions, such as propagationPolicy."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        answer = self._send("DELETE", path, body, JSON)
        if answer.status == 404:
            answer.read()
            return False
        self._body(answer)
        return True

    def watch(self, path: str, **query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """(ADDED | MODIFIED | DELETED | BOOKMARK | ERROR, object) until the server ends it, after
        WATCH_SECONDS at the latest."""
        wanted = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS, **query}
        answer = self._request(path, wanted, (TIMEOUT_SECONDS[0], WATCH_SECONDS + 30.0))
        if answer.status >= 400:
            self._body(answer)
        rest = b""
        # Each change as it comes: a fixed size would wait until so much has changed.
        for chunk in answer.response.stream(None, decode_content=True):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    change = json.loads(line)
                    yield change["type"], change["object"]

    def clock_offset(self) -> float | None:
        """The API server's clock minus ours, in seconds, to about one; None where it does not tell."""
        before = time.time()
        answer = self._request("/version", {}, TIMEOUT_SECONDS)
        middle = (before + time.time()) / 2
        self._body(answer)
        told = answer.headers.get("Date")
        # The header is cut to whole seconds: half of one more is the best guess.
        return round(parsedate_to_datetime(told).timestamp() + 0.5 - middle, 3) if told else None

    def exec(
        self,
        namespace: str,
        pod: str,
        command: Sequence[str],
        container: str = "trainer",
        seconds: float = EXEC_SECONDS,
    ) -> Answer:
        """Run a command in a running container. Raises ApiException where it can not be started."""
        from kubernetes import client, config, stream

        # A client of its own: `stream` exchanges a method of the client while it connects.
        api = config.new_client_from_config(
            config_file=str(Path(self._target.kubeconfig).expanduser()), context=self._target.context
        )
        try:
            session = stream.stream(
                client.CoreV1Api(api).connect_get_namespaced_pod_exec,
                pod, namespace, container=container, command=list(command),
                stdin=False, stdout=True, stderr=True, tty=False, _preload_content=False,
            )  # fmt: skip
            try:
                session.run_forever(timeout=seconds)
                out, err = session.read_channel(1), session.read_channel(2)
                return Answer(_code(session), out, err)
            finally:
                session.close()
        finally:
            api.close()

    def _send(self, method: str, path: str, body: Mapping[str, Any], content_type: str) -> Any:
        _method, url, headers, sent, _post = self._api.param_serialize(
            method=method,
            resource_path=quote(path),
            header_params={"Accept": JSON, "Content-Type": content_type},
            body=dict(body),
            auth_settings=["BearerToken"],
        )
        return self._api.rest_client.request(
            method, url, headers=headers, body=sent, _request_timeout=TIMEOUT_SECONDS
        )


def _code(session: Any) -> int | None:
    if session.is_open():
        return None
    try:
        return session.returncode
    except (TypeError, KeyError, IndexError, ValueError):  # no status came: the container went first
        return None
