"""Entry of the reference program: options, then the framework's settings, then the framework."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence

from trainer.digits.settings import parse
from trainer.recovery import BadInput, ExitCode, Superseded, emit, open_attempt

# One thread and no race between partial sums: a CPU run repeats bit for bit, and a small model is no slower.
CPU_FLAGS = "--xla_cpu_multi_thread_eigen=false"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


def prepare_framework(environ: MutableMapping[str, str]) -> None:
    """Set what must stand in the environment before JAX is imported. What is set already stays."""
    flags = environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        environ["XLA_FLAGS"] = f"{flags} {CPU_FLAGS}".strip()
    for name in THREADS:
        environ.setdefault(name, "1")
    environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU's memory is taken as needed


def main(arguments: Sequence[str], received: Sequence[int], environ: Mapping[str, str] = os.environ) -> int:
    """Run to the end or to the first signal in `received`; the exit code."""
    try:
        settings = parse(arguments, environ)
        prepare_framework(os.environ)
        attempt = open_attempt(settings.checkpoint_dir, environ)
        began = time.monotonic()
        from trainer.digits.train import train  # seconds: only once the options are known to be good

        emit("imported", seconds=round(time.monotonic() - began, 3))
        if received:
            return ExitCode.PREEMPTED
        return train(settings, attempt, lambda: bool(received))
    except BadInput as error:
        emit("bad-input", reason=str(error))
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    except Superseded as error:
        emit("superseded", reason=str(error))
        return ExitCode.SUPERSEDED
