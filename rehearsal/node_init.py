"""The first process of a node's namespaces: gives the node its own standard folders, then reaps orphans.

Run by node.py as a plain script with one argument: a JSON file with `hostname`, `binds` ([source, target] pairs),
`shared` (targets whose mounts propagate into containers) and `ready` (a file to write when all is in place).
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(plan["hostname"])
    for source, target in plan["binds"]:
        subprocess.run(["mount", "--no-mtab", "--bind", source, target], check=True)
    for target in plan["shared"]:
        subprocess.run(["mount", "--no-mtab", "--make-shared", target], check=True)
    Path(plan["ready"]).touch()
    # The first process of a pid namespace inherits every orphan in it and must wait for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    while True:
        number = signal.sigwait({signal.SIGCHLD, signal.SIGTERM})
        if number == signal.SIGTERM:
            return  # the kernel ends the rest of the namespace with us
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


if __name__ == "__main__":
    main()
