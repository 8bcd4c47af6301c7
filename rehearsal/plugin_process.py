"""What a plugin of the engine that we write ourselves does as a process: it starts quickly, and ends with its engine.

    import_stubs()
    from pulumi.runtime.proto import provider_pb2
    ...
    wait_for_end()
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
import types
from pathlib import Path

LOOK_FOR_ENGINE_SECONDS = 2.0
PACKAGES = ("pulumi", "pulumi.runtime", "pulumi.runtime.proto")


def import_stubs() -> None:
    """Let modules of `pulumi.runtime.proto` be imported alone. Changes nothing where the SDK is imported already.

    `import pulumi` loads the automation API, the resource model and tracing: a second of processor time on a small
    machine. A language host or a provider uses none of it, and every command of the CLI starts several of them.

    Raises ModuleNotFoundError where the SDK is not installed.
    """
    if "pulumi" in sys.modules:
        return
    found = importlib.util.find_spec("pulumi")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'pulumi'", name="pulumi")
    root = Path(next(iter(found.submodule_search_locations)))
    for name in PACKAGES:
        # A package whose __init__ is never run: only its folder, where its modules are looked for.
        folder = root.joinpath(*name.split(".")[1:])
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)


def wait_for_end() -> None:
    """Return when the engine ends this plugin, which it does with SIGINT, or when the engine itself is gone.

    A killed engine says nothing; Pulumi's own hosts ask for theirs now and then (pulumi,
    sdk/go/common/util/rpcutil/healthcheck.go). Call it in the main thread.
    """
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    engine = os.getppid()
    while not ended.wait(LOOK_FOR_ENGINE_SECONDS) and os.getppid() == engine:
        pass
