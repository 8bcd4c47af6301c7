"""What a verb needs of the machine, told before anything is begun."""

from __future__ import annotations

import os
import platform

from ops.errors import OpsError
from ops.exit_codes import ExitCode

WAY_OUT = (
    "Any other cluster (kind, minikube, a cloud's) serves as well: name its kubeconfig and context in a stack of your "
    "own and run `./holdfast up --stack <name>`; docs/environments.md shows it."
)


def need_linux_root(verb: str) -> None:
    """The rehearsal cluster makes network namespaces, mounts and cgroups: Linux, as root. Other verbs never ask."""
    if platform.system() != "Linux":
        raise OpsError(
            f"`./holdfast {verb}` for the rehearsal stack needs Linux, and this is {platform.system()}.",
            WAY_OUT,
            ExitCode.UNAVAILABLE,
        )
    if os.geteuid() != 0:
        raise OpsError(
            f"`./holdfast {verb}` for the rehearsal stack makes network namespaces, mounts and cgroups: it needs root.",
            f"Run `sudo ./holdfast {verb}`. {WAY_OUT}",
            ExitCode.UNAVAILABLE,
        )
