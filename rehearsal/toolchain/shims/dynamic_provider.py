"""The `pulumi-resource-pulumi-python` of a Pulumi CLI that was built from source.

It is the SDK's own server of dynamic resources (`python -m pulumi.dynamic`, as the official one runs it), and it ends with its
engine: one that was killed, or ended in an error of its own, says nothing to a provider that is waiting for a cluster.
"""

import os
import runpy
import sys
import threading
import time

LOOK_FOR_ENGINE_SECONDS = 2.0


def end_with_engine() -> None:
    engine = os.getppid()
    while os.getppid() == engine:
        time.sleep(LOOK_FOR_ENGINE_SECONDS)
    os._exit(1)  # whatever a resource is waiting for: nobody hears the answer


threading.Thread(target=end_with_engine, daemon=True).start()
sys.path[0] = os.getcwd()  # the program's folder, as `python -m` has it: its own modules can be imported
runpy.run_module("pulumi.dynamic", run_name="__main__", alter_sys=True)
