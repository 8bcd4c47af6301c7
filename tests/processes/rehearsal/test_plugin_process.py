"""The programs beside the engine import the SDK's stubs, and nothing else of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rehearsal.state import CHECKOUT
from rehearsal.toolchain import SHIMS

PROGRAMS = {
    "language host": SHIMS / "language_host.py",
    "recording provider": CHECKOUT / "rehearsal" / "recording_providers" / "provider.py",
}
AS_A_PROGRAM = """
import runpy, sys, threading
threading.Event.wait = lambda self, timeout=None: True  # ends at once: only what it imported is asked here
program = sys.argv[1]
sys.argv = [program, "--executor=none", "--package=aws"]
runpy.run_path(program, run_name="__main__")
loaded = {name for name in sys.modules if name.split(".")[0] == "pulumi"}
print(sorted(name for name in loaded if not name.startswith("pulumi.runtime.proto")))
"""


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_beside_the_engine_loads_nothing_of_the_sdk_but_its_messages(program) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_A_PROGRAM, str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['pulumi', 'pulumi.runtime']"


def test_where_the_sdk_is_loaded_it_stays_as_it_is() -> None:
    import pulumi

    from rehearsal.plugin_process import import_stubs

    import_stubs()
    assert sys.modules["pulumi"] is pulumi
    assert pulumi.Output is not None
