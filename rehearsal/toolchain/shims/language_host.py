"""A `pulumi-language-python` for a Pulumi CLI that was built from source.

Pulumi publishes its Python language host only inside its release archive, not as a Go module. This is the part of the
`LanguageRuntime` service that running programs and policy packs needs, on the stubs of the Python SDK. The program
itself is started by the SDK's own `pulumi-language-python-exec`. With the official release none of this is used.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2

if __name__ == "__main__":
    # The engine starts this file, not a module: the checkout is not on its path.
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from rehearsal.plugin_process import import_stubs, wait_for_end

    import_stubs()
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2  # noqa: E402, after import_stubs

# The SDK's launcher reports with this code that it has shown its message already (the `bail` of a Run response).
SHOWN_TO_USER = 32
NO_LIMIT = [("grpc.max_receive_message_length", 400 * 1024 * 1024), ("grpc.max_send_message_length", 400 * 1024 * 1024)]
EXECUTOR_FLAG = "--executor="  # where the SDK's launcher is


def interpreter(info: Any) -> str:
    """The Python of the project's `virtualenv` option; without one, the Python that runs this host."""
    options = dict(info.options.items()) if info.HasField("options") else {}
    if chosen := options.get("virtualenv"):
        python = Path(info.root_directory) / chosen / "bin" / "python"
        if not python.exists():
            raise FileNotFoundError(
                f"The `virtualenv` option names {chosen}, but {python} does not exist. "
                "Run `./holdfast env` once, which makes it, or make it with `python3 -m venv`."
            )
        return str(python)
    return sys.executable


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Serves one engine. `engine` is the address that the engine gave on the command line or in its handshake."""

    def __init__(self, engine: str, executor: str) -> None:
        self.engine = engine
        self.executor = executor
        self.running: set[subprocess.Popen[bytes]] = set()

    def Handshake(self, request: Any, context: Any) -> Any:
        self.engine = request.engine_address or self.engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="")

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        # None: the engine then asks for a provider only when a resource needs one.
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(self, request: Any, context: Any) -> Any:
        return language_pb2.GetRequiredPluginsResponse()

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:
        return language_pb2.GetProgramDependenciesResponse()

    def RuntimeOptionsPrompts(self, request: Any, context: Any) -> Any:
        return language_pb2.RuntimeOptionsResponse()

    def About(self, request: Any, context: Any) -> Any:
        return language_pb2.AboutResponse(executable=sys.executable, version=sys.version.split()[0])

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:
        text = "The dependencies are installed by ./holdfast into .venv.\n"
        yield language_pb2.InstallDependenciesResponse(stdout=text.encode())

    def Cancel(self, request: Any, context: Any) -> Any:
        for child in list(self.running):
            child.terminate()
        return empty_pb2.Empty()

    def Run(self, request: Any, context: Any) -> Any:
        try:
            python = interpreter(request.info)
        except FileNotFoundError as error:
            return language_pb2.RunResponse(error=str(error))
        settings = {
            "pwd": request.pwd or request.info.program_directory,
            "monitor": request.monitor_address,
            "engine": self.engine,
            "project": request.project,
            "stack": request.stack,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization,
            "root_directory": request.info.root_directory,
        }
        flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
        program = str(Path(request.info.program_directory) / (request.info.entry_point or "."))
        environment = {
            **os.environ,
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
            "PYTHONUNBUFFERED": "1",
        }
        child = subprocess.Popen([python, "-u", self.executor, *flags, program, *request.args], env=environment)
        code = self._wait(child)
        if code == SHOWN_TO_USER:
            return language_pb2.RunResponse(bail=True)
        return language_pb2.RunResponse(error=f"the program ended with code {code}" if code else "")

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:
        folder = request.info.program_directory
        module = ["-m", "pulumi.policy", *request.args, folder] if request.kind == "analyzer" else [folder, *request.args]
        environment = dict(entry.partition("=")[::2] for entry in request.env) or dict(os.environ)
        child = subprocess.Popen(
            [interpreter(request.info), "-u", *module],
            cwd=request.pwd or None,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        context.add_callback(child.terminate)
        said: queue.Queue[tuple[str, bytes] | None] = queue.Queue()

        def read(name: str, stream: Any) -> None:
            while block := stream.read1(65536):
                said.put((name, block))
            said.put(None)

        for name in ("stdout", "stderr"):
            threading.Thread(target=read, args=(name, getattr(child, name)), daemon=True).start()
        for _ in range(2):
            while block := said.get():
                yield language_pb2.RunPluginResponse(**{block[0]: block[1]})
        yield language_pb2.RunPluginResponse(exitcode=self._wait(child))

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        self.running.add(child)
        try:
            return child.wait()
        finally:
            self.running.discard(child)


def main() -> None:
    engine = next((word for word in reversed(sys.argv[1:]) if not word.startswith("-")), "")
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=NO_LIMIT)
    executor = next(word.removeprefix(EXECUTOR_FLAG) for word in sys.argv if word.startswith(EXECUTOR_FLAG))
    host = LanguageHost(engine, executor)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    wait_for_end()
    host.Cancel(None, None)
    server.stop(grace=0.2).wait()


if __name__ == "__main__":
    main()
