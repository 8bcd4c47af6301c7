"""The `pulumi` of the rehearsal's PATH: the real one, without a salt left in tracked stack files.

A stack whose secrets provider is in its state still gets `encryptionsalt` written into its Pulumi.<stack>.yaml by every
command (pulumi, pkg/cmd/pulumi/stack/secrets.go, `SecretsManagerShouldSave`: "should be saved if possible"). The
rehearsal's state dies with its cluster, so that line would be wrong for everybody else. Here it is taken out again
after the command, and only where the file did not have one before.

Arguments: the real program, then its own arguments.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

SALT = "encryptionsalt:"


def salted(text):
    return any(line.startswith(SALT) for line in text.splitlines())


def unsalted(text):
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(SALT))


def main():
    folder = Path.cwd()
    before = {path: path.read_text() for path in folder.glob("Pulumi.*.yaml")}
    # The terminal sends Ctrl-C to both; the engine answers it and is waited for.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: child.send_signal(got))
    code = child.wait()
    if os.environ.get("PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER") == "true":
        for path in folder.glob("Pulumi.*.yaml"):
            text = path.read_text()
            if not salted(text) or salted(before.get(path, "")):
                continue
            if rest := unsalted(text):
                path.write_text(rest)
            else:
                path.unlink()
    sys.exit(code if code >= 0 else 128 - code)


main()
