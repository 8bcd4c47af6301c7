"""A small client of the Kubernetes API for pods: JSON over one kept-alive TLS connection.

Why not the `kubernetes` package: importing its client costs 0.9 s of CPU and 48 MB in every pod, and the
modules used here cost 0.05 s and 17 MB (measured with Python 3.11). The rehearsal starts several such pods at
once on two cores, and the stand-in needs only five verbs.
"""

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# Asks the server for names, labels and owners only: a full Node carries its image list, many kilobytes.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_JSON = "application/json"
_SERVER_SIDE_APPLY = "application/apply-patch+yaml"
_MERGE_PATCH = "application/merge-patch+json"
_TIMEOUT_SECONDS = 10.0

Json = dict[str, Any]


class ApiError(Exception):
    """The server answered with an error: `status` is the HTTP code, the text is the server's own sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})")
        self.status = status


# What a caller in a loop should survive: the server refused, or it is not there now.
TRANSIENT = (ApiError, OSError, http.client.HTTPException)


class Kube:
    """One connection to one API server. Not safe for use by several threads."""

    def __init__(self, host: str, port: int, token_file: Path | None, tls: ssl.SSLContext | None) -> None:
        self._host, self._port, self._token_file, self._tls = host, port, token_file, tls
        self._connection: http.client.HTTPConnection | None = None

    @classmethod
    def in_cluster(cls) -> "Kube":
        """The client of a pod's own ServiceAccount. Raises KeyError outside of a cluster."""
        return cls(
            host=os.environ["KUBERNETES_SERVICE_HOST"],
            port=int(os.environ["KUBERNETES_SERVICE_PORT"]),
            token_file=SERVICE_ACCOUNT / "token",
            tls=ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
        )

    def get(self, path: str, accept: str = _JSON) -> Json:
        """Read one object or list. Raises one of TRANSIENT."""
        return self._request("GET", path, None, accept=accept)

    def apply(self, path: str, thing: Json, manager: str) -> Json:
        """Make or change the object at `path` by server-side apply, taking conflicting fields over."""
        query = f"{path}?fieldManager={manager}&force=true"
        return self._request("PATCH", query, thing, content_type=_SERVER_SIDE_APPLY)

    def merge(self, path: str, patch: Json) -> Json:
        """Change some fields; a null removes one."""
        return self._request("PATCH", path, patch, content_type=_MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Delete the object with its pods; one that is gone already is no error."""
        try:
            self._request("DELETE", path, {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def _request(
        self, method: str, path: str, body: Json | None, *, content_type: str = _JSON, accept: str = _JSON
    ) -> Json:
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": "gpu-operator-rehearsal"}
        if self._token_file is not None:
            # Read each time: the kubelet replaces a bound token before it expires.
            headers["Authorization"] = "Bearer " + self._token_file.read_text(encoding="utf-8").strip()
        data = None if body is None else json.dumps(body).encode()
        fresh = self._connection is None
        try:
            status, answer = self._send(method, path, data, headers)
        except (OSError, http.client.HTTPException):
            self._drop()
            if fresh:
                raise
            # The server closes idle connections: every verb here may be repeated, so try once on a new one.
            try:
                status, answer = self._send(method, path, data, headers)
            except (OSError, http.client.HTTPException):
                self._drop()
                raise
        if status >= http.client.BAD_REQUEST:
            raise ApiError(status, _message(answer) or f"{method} {path} was refused")
        return json.loads(answer)

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, path, body=data, headers=headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._tls
        )

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _message(answer: bytes) -> str:
    """The sentence in a Status object; empty when the answer is none (a proxy's page, a cut connection)."""
    try:
        status = json.loads(answer)
    except ValueError:
        return ""
    return str(status.get("message", "")) if isinstance(status, dict) else ""
