"""Changing a cluster over a real socket: what is sent, what is understood, and changes as they come."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from ops.acting import ActingKube
from ops.stacks import Target
from tests.processes.ops.api_server import kubeconfig

Sent = list[tuple[str, str, str, Any]]


class Handler(BaseHTTPRequestHandler):
    """Notes what it is sent; streams a watch in chunks, the second change half a second after the first."""

    protocol_version = "HTTP/1.1"
    sent: Sent

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _change(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        self.sent.append((self.command, self.path, self.headers.get("Content-Type", ""), body))
        if "missing" in self.path:
            self._answer(404, {"message": "not found"})
        elif "conflict" in self.path:
            self._answer(409, {"message": "the object has been modified"})
        else:
            self._answer(200, {"metadata": {"uid": "1"}})

    do_POST = do_PATCH = do_DELETE = _change

    def do_GET(self) -> None:
        self.sent.append(("GET", self.path, "", None))
        if "watch=true" not in self.path:
            self._answer(200, {"gitVersion": "v1"})
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name in ("one", "two"):
            line = json.dumps({"type": "ADDED", "object": {"metadata": {"name": name}}}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
            time.sleep(0.5 if name == "one" else 0)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ActingKube, Sent]]:
    sent: Sent = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Noting", (Handler,), {"sent": sent}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        file = kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        yield ActingKube(Target(str(file), "here")), sent
    finally:
        server.shutdown()
        server.server_close()


def test_a_patch_is_a_merge_patch_that_keeps_its_nulls(served: tuple[ActingKube, Sent]) -> None:
    kube, sent = served
    kube.patch("/api/v1/nodes/n", {"metadata": {"annotations": {"a": None}}, "spec": {"taints": None}})
    ((method, path, kind, body),) = sent
    assert (method, path, kind) == ("PATCH", "/api/v1/nodes/n", "application/merge-patch+json")
    assert body == {"metadata": {"annotations": {"a": None}}, "spec": {"taints": None}}


def test_a_conflict_is_the_client_s_error_with_its_status(served: tuple[ActingKube, Sent]) -> None:
    with pytest.raises(ApiException) as caught:
        served[0].patch("/api/v1/nodes/conflict", {})
    assert caught.value.status == 409


def test_a_deletion_carries_its_options_and_knows_what_was_gone_already(
    served: tuple[ActingKube, Sent],
) -> None:
    kube, sent = served
    assert kube.delete("/api/v1/pods/p", propagationPolicy="Background") is True
    assert kube.delete("/api/v1/pods/missing") is False
    assert sent[0][3]["propagationPolicy"] == "Background"


def test_a_created_object_comes_back(served: tuple[ActingKube, Sent]) -> None:
    assert served[0].create("/apis/batch/v1/jobs", {"kind": "Job"})["metadata"]["uid"] == "1"


def test_each_change_comes_when_it_happens_and_not_with_the_next(served: tuple[ActingKube, Sent]) -> None:
    kube, sent = served
    came = []
    for kind, item in kube.watch("/api/v1/pods", labelSelector="a=b"):
        came.append((kind, item["metadata"]["name"], time.monotonic()))
    assert [(kind, name) for kind, name, _ in came] == [("ADDED", "one"), ("ADDED", "two")]
    assert came[1][2] - came[0][2] > 0.3
    assert "watch=true" in sent[0][1] and "labelSelector=a%3Db" in sent[0][1]


def test_the_clock_of_the_server_is_told_by_its_answer(served: tuple[ActingKube, Sent]) -> None:
    offset = served[0].clock_offset()
    assert offset is not None and abs(offset) < 2
