"""A small API server for tests: answers GETs from a table of paths, in pages where asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml


@contextmanager
def serving(answers: Mapping[str, Any], asked: list[str]) -> Iterator[str]:
    """Serve `answers` (path -> list of items, one object, text, or (status, object)) noting requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            answer = answers.get(parts.path, (404, {"message": f"no {parts.path}"}))
            status, body = answer if isinstance(answer, tuple) else (200, answer)
            if isinstance(body, list):
                body = _page(body, query)
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _page(items: list[Any], query: Mapping[str, str]) -> dict[str, Any]:
    start, size = int(query.get("continue", 0)), int(query.get("limit", len(items) or 1))
    more = {"continue": str(start + size)} if start + size < len(items) else {}
    return {"items": items[start : start + size], "metadata": more}


def kubeconfig(folder: Path, server: str) -> Path:
    """A kubeconfig with the context `here`, and another one as the current context."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "elsewhere",
        "clusters": [
            {"name": "here", "cluster": {"server": server}},
            {"name": "elsewhere", "cluster": {"server": "http://127.0.0.1:9"}},
        ],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "here", "user": "me"}},
            {"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "me"}},
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return path
