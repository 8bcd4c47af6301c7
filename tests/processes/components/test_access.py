"""The way to a cluster, over real HTTP to a server in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.cluster_resources.access import connect, items
from components.cluster_resources.errors import ChangedMeanwhile, ClusterProblem, ClusterUnreachable


class Api(BaseHTTPRequestHandler):
    """Answers as the test says and remembers what was asked."""

    answer: tuple[int, dict[str, Any]] = (200, {})
    asked: list[dict[str, Any]] = []

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        Api.asked.append(
            {
                "method": self.command,
                "path": self.path,
                "body": body,
                "type": self.headers.get("Content-Type"),
                "authorization": self.headers.get("Authorization"),
            }
        )
        status, answer = Api.answer
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    http = HTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "production",
                "clusters": [
                    {"name": "a", "cluster": {"server": server}},
                    {"name": "b", "cluster": {"server": "http://127.0.0.1:9"}},
                ],
                "users": [{"name": "u", "user": {"token": "t0ken"}}],
                "contexts": [
                    {"name": "dev", "context": {"cluster": "a", "user": "u"}},
                    {"name": "production", "context": {"cluster": "b", "user": "u"}},
                ],
            }
        )
    )
    return str(path)


@pytest.fixture
def api(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    Api.asked = []
    return connect(kubeconfig(tmp_path, server), "dev")


def test_the_context_that_was_named_is_used_and_not_the_current_one(api: Any) -> None:
    Api.answer = (200, {"items": [{"metadata": {"name": "gpu-0"}}]})
    assert items(api, "/api/v1/nodes") == [{"metadata": {"name": "gpu-0"}}]
    assert Api.asked[0]["authorization"] == "Bearer t0ken"


def test_a_merge_patch_keeps_its_nulls_which_are_what_deletes_a_key(api: Any) -> None:
    Api.answer = (200, {})
    patch = {"metadata": {"resourceVersion": "7", "labels": {"pool": None}}, "spec": {"taints": None}}
    api.patch("/api/v1/nodes/gpu-0", patch)
    assert Api.asked[0]["body"] == patch and Api.asked[0]["type"] == "application/merge-patch+json"


def test_selectors_go_into_the_query_escaped(api: Any) -> None:
    Api.answer = (200, {"items": []})
    items(api, "/api/v1/pods", labelSelector="a/b=c")
    assert Api.asked[0]["path"] == "/api/v1/pods?labelSelector=a%2Fb%3Dc"


def test_what_does_not_exist_is_none_and_an_empty_list(api: Any) -> None:
    Api.answer = (404, {"message": "not found"})
    assert api.get("/api/v1/nodes/x") is None and items(api, "/apis/nvidia.com/v1/clusterpolicies") == []


def test_a_write_onto_a_changed_object_is_told_apart(api: Any) -> None:
    Api.answer = (409, {"message": "the object has been modified"})
    with pytest.raises(ChangedMeanwhile):
        api.patch("/api/v1/nodes/gpu-0", {})


def test_a_missing_right_is_told_with_the_right_that_is_needed(api: Any) -> None:
    Api.answer = (403, {"message": 'nodes is forbidden: User "ci" cannot list resource "nodes"'})
    with pytest.raises(
        ClusterProblem,
        match=r'refuses GET /api/v1/nodes: nodes is forbidden: User "ci".*nodes: list and patch',
    ):
        items(api, "/api/v1/nodes")


def test_a_right_that_has_nothing_to_do_with_nodes_names_no_right_of_nodes(api: Any) -> None:
    Api.answer = (403, {"message": "jobsets is forbidden"})
    with pytest.raises(ClusterProblem, match="or grant it[.]$"):
        api.create("/apis/jobset.x-k8s.io/v1alpha2/namespaces/n/jobsets", {})


def test_a_dry_run_is_asked_for_in_the_query_and_a_refusal_keeps_the_servers_own_words(api: Any) -> None:
    Api.answer = (500, {"message": "failed calling webhook"})
    with pytest.raises(ClusterUnreachable) as error:
        api.create("/apis/x/v1/namespaces/n/things", {"kind": "Thing"}, dryRun="All")
    assert error.value.answer == "failed calling webhook"
    asked = Api.asked[0]
    assert (asked["method"], asked["path"]) == ("POST", "/apis/x/v1/namespaces/n/things?dryRun=All")
    assert asked["body"] == {"kind": "Thing"} and asked["type"] == "application/json"


def test_an_error_of_the_server_is_told_with_its_message(api: Any) -> None:
    Api.answer = (422, {"message": "Node is invalid"})
    with pytest.raises(ClusterProblem, match="answers PATCH /api/v1/nodes/gpu-0 with 422: Node is invalid"):
        api.patch("/api/v1/nodes/gpu-0", {})


def test_a_server_that_is_too_busy_counts_as_unreachable_for_now(api: Any) -> None:
    Api.answer = (503, {"message": "try again"})
    with pytest.raises(ClusterUnreachable):
        items(api, "/api/v1/nodes")


def test_an_unreachable_cluster_is_told_in_one_sentence_with_context_and_file(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:9")
    with pytest.raises(ClusterProblem) as error:
        items(connect(path, "dev"), "/api/v1/nodes")
    assert str(error.value).startswith(f"The cluster of context dev in {path} can not be reached: ")
    assert "Connection refused" in str(error.value) and "\n" not in str(error.value)


def test_a_kubeconfig_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ClusterProblem, match="does not exist.*holdfast:cluster.kubeconfig"):
        connect(str(tmp_path / "none"), "dev")


def test_a_context_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ClusterProblem, match="by context staging.*holdfast:cluster.context"):
        connect(kubeconfig(tmp_path, "http://127.0.0.1:9"), "staging")


def test_a_file_that_is_no_kubeconfig_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{not yaml: [")
    with pytest.raises(ClusterProblem, match="gives no access"):
        connect(str(path), "dev")
