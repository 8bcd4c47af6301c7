"""A small API server and a small kubelet, both real servers on real sockets, for the stand-in's programs."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import pytest

from rehearsal.gpu_operator import deviceplugin_api as api
from rehearsal.gpu_operator.kube import Kube

Json = dict[str, Any]


class ApiServer:
    """Objects by path; understands the verbs that the stand-in uses. `requests` holds (method, path)."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.requests: list[tuple[str, str]] = []
        self.refuse_next: list[int] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer waits 40 ms for the client's delayed ACK

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                kind = self.headers.get("Content-Type", "")
                status, answer = server.handle(self.command, self.path, body, kind)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = do_DELETE = _answer

            def log_message(self, *_arguments: object) -> None:
                """Tests print what they need themselves."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def handle(self, method: str, target: str, body: Json, kind: str) -> tuple[int, Json]:
        path = urlsplit(target).path
        self.requests.append((method, path))
        if self.refuse_next:
            return self.refuse_next.pop(0), {"kind": "Status", "message": "not now"}
        if method == "GET":
            return self._get(path, parse_qs(urlsplit(target).query))
        if method == "DELETE":
            return (200, self.objects.pop(path)) if path in self.objects else self._not_found(path)
        return self._patch(path, body, kind)

    def _get(self, path: str, query: dict[str, list[str]]) -> tuple[int, Json]:
        if path in self.objects:
            return 200, self.objects[path]
        if path.rsplit("/", 1)[-1] not in ("nodes", "daemonsets", "runtimeclasses", "clusterpolicies"):
            return self._not_found(path)
        items = [one for key, one in self.objects.items() if key.rsplit("/", 1)[0] == path]
        for selector in query.get("labelSelector", []):
            label, value = selector.split("=")
            items = [one for one in items if one["metadata"].get("labels", {}).get(label) == value]
        return 200, {"items": items}

    def _patch(self, path: str, body: Json, kind: str) -> tuple[int, Json]:
        target = path.removesuffix("/status")
        if kind == "application/apply-patch+yaml":
            old = self.objects.get(target, {}).get("metadata", {}).get("generation", 0)
            self.objects[target] = {**body, "metadata": {**body["metadata"], "generation": old + 1}}
        elif target not in self.objects:
            return self._not_found(path)
        else:
            _merge(self.objects[target], body)
        return 200, self.objects[target]

    @staticmethod
    def _not_found(path: str) -> tuple[int, Json]:
        return 404, {"kind": "Status", "message": f"{path} not found"}

    def add_node(self, name: str, **labels: str) -> None:
        self.objects[f"/api/v1/nodes/{name}"] = {"metadata": {"name": name, "labels": labels}}

    def labels(self, node: str) -> dict[str, str]:
        return self.objects[f"/api/v1/nodes/{node}"]["metadata"]["labels"]

    def client(self) -> Kube:
        return Kube("127.0.0.1", self.port, token_file=None, tls=None)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _merge(old: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            _merge(old[key], value)
        else:
            old[key] = value


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.close()


class Kubelet:
    """The kubelet's registration service on a unix socket; `registered` holds the requests in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: list[Any] = []
        self.refusals = 0
        self._arrived = threading.Condition()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """As a real one: everything in the folder goes, then its own socket appears."""
        for old in self.folder.iterdir():
            old.unlink()
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, api.RegisterRequest.FromString, api.Empty.SerializeToString
        )
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        service = grpc.method_handlers_generic_handler(api.REGISTRATION_SERVICE, {"Register": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix://{self.folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=0).wait()
            self._server = None

    def _register(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._arrived:
            if self.refusals:
                self.refusals -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "the device manager is not ready")
            self.registered.append(request)
            self._arrived.notify_all()
        return api.Empty()

    def wait_for_registrations(self, count: int, seconds: float = 10) -> None:
        with self._arrived:
            came = self._arrived.wait_for(lambda: len(self.registered) >= count, timeout=seconds)
        assert came, f"{len(self.registered)} registrations after {seconds} s, {count} expected"


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    # A unix socket's path has at most 107 characters: pytest's own folders can be longer.
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as folder:
        made = Kubelet(Path(folder))
        made.start()
        yield made
        made.stop()
