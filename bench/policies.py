"""What the policy pack costs a preview, and what our program costs beside one that declares the same resources by hand.

    python bench/policies.py [--rounds N] [--sizes 100,500,1000,2000] [--only pack|dev]

The pack: previews of a program with that many Kubernetes objects, with Pulumi's own provider in render mode, in turn without a pack, with
ours, and with one of 20 simple rules. The dev stack: previews of our program and of a bare one that is written out from the same resources,
in turn, with recording providers, so that no cluster is needed. Prints one JSON line per size, and one for dev. Medians; every ratio is of
the same round's neighbours. Needs the toolchain of `./holdfast up`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ops.bootstrap import keep_bytecode
from rehearsal import toolchain
from rehearsal.progress import Progress
from rehearsal.recording_providers import RECORDING, Recorded, plugins, read

ZEROS = "sha256:" + "0" * 64
MANY = '''"""Objects as clusters have them: of ten, four ConfigMaps, two Services, two Deployments, a Role and a GPU Job."""

import os

import pulumi
import pulumi_kubernetes as k8s

provider = k8s.Provider("offline", render_yaml_to_directory=os.environ["RENDER_DIRECTORY"])
options = pulumi.ResourceOptions(provider=provider)
IMAGE = "registry.example.com/app@sha256:" + "1" * 64


def pod(gpu):
    container = {"name": "main", "image": IMAGE, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    spec = {
        "restartPolicy": "Never" if gpu else "Always",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 120,
        "containers": [container],
    }
    if gpu:
        container["resources"]["limits"]["nvidia.com/gpu"] = 1
        container["resources"]["requests"] = {"nvidia.com/gpu": 1}
        container["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
        spec["volumes"] = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return spec


for number in range(int(os.environ["RESOURCES"])):
    name, kind = f"object-{number}", number % 10
    metadata = {"name": name, "namespace": f"team-{number % 7}", "labels": {"app": name, "team": str(number % 7)}}
    if kind < 4:
        k8s.core.v1.ConfigMap(name, metadata=metadata, data={f"key-{i}": "value" for i in range(8)}, opts=options)
    elif kind < 6:
        ports = [{"port": 80, "targetPort": 8080}]
        k8s.core.v1.Service(name, metadata=metadata, spec={"selector": {"app": name}, "ports": ports}, opts=options)
    elif kind < 8:
        template = {"metadata": {"labels": {"app": name}}, "spec": pod(False)}
        spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
        k8s.apps.v1.Deployment(name, metadata=metadata, spec=spec, opts=options)
    elif kind < 9:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
        k8s.rbac.v1.Role(name, metadata=metadata, rules=rules, opts=options)
    else:
        ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        spec = {
            "backoffLimit": 6,
            "activeDeadlineSeconds": 86400,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [ignored]},
            "template": {"spec": pod(True)},
        }
        k8s.batch.v1.Job(name, metadata=metadata, spec=spec, opts=options)
'''
SIMPLE = '''"""Twenty rules that look at one key each: what a pack costs that does next to nothing."""

from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy


def rule(number):
    def validate(args, report):
        if args.resource_type == "kubernetes:core/v1:ConfigMap" and f"forbidden-{number}" in args.props.get("data", {}):
            report("forbidden")

    return ResourceValidationPolicy(name=f"simple-{number}", description="A key.", validate=validate)


PolicyPack(name="simple", policies=[rule(n) for n in range(20)], enforcement_level=EnforcementLevel.MANDATORY)
'''
BARE = '''"""The dev stack's resources, each declared as it is."""

import pulumi
import pulumi_kubernetes as k8s
from pulumi import dynamic


class Nothing(dynamic.ResourceProvider):
    pass


def kind(name):
    class Declared(dynamic.Resource, module="holdfast", name=name):
        pass

    return Declared


'''


class Bench:
    """The CLI with a home and a backend of its own."""

    def __init__(self, scratch: Path) -> None:
        toolchain.link(toolchain.ensure(toolchain.PULUMI_PROGRAMS, Progress()))
        keep_bytecode(os.environ)  # as ./holdfast does: compiling the SDKs at each preview would be most of what is measured
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PULUMI_", "KUBECONFIG", "HOLDFAST_"))
        }
        self.env = {**clean, **toolchain.tool_environment(scratch / "home", scratch / "backend")}

    def pulumi(self, folder: Path, *arguments: str, **more: str) -> float:
        """Seconds of one command; its words are shown if it fails."""
        started = time.monotonic()
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive"],
            cwd=folder, env={**self.env, **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - started
        if done.returncode:
            sys.exit(f"pulumi {' '.join(arguments)} failed:\n{done.stdout}")
        return seconds


def program(folder: Path, text: str, providers: Sequence[Mapping[str, str]] = ()) -> Path:
    folder.mkdir(parents=True)
    (folder / "__main__.py").write_text(text)
    venv = str(Path(sys.prefix))
    settings: dict[str, Any] = {
        "name": folder.name,
        "runtime": {"name": "python", "options": {"virtualenv": venv}},
    }
    if providers:
        settings["plugins"] = {"providers": list(providers)}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
    return folder


def pack_cost(bench: Bench, scratch: Path, size: int, rounds: int) -> dict[str, Any]:
    """Seconds of a preview of `size` objects without a pack, with ours and with the simple one."""
    folder = program(scratch / f"many-{size}", MANY)
    simple = folder / "simple-pack"
    simple.mkdir()
    (simple / "__main__.py").write_text(SIMPLE)
    (simple / "PulumiPolicy.yaml").write_text("description: Twenty rules\nruntime: python\n")
    bench.pulumi(folder, "stack", "init", "bench")
    ways = {
        "none": (),
        "ours": ("--policy-pack", str(ROOT / "policies")),
        "simple": ("--policy-pack", str(simple)),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    (folder / "rendered").mkdir()
    more = {"RESOURCES": str(size), "RENDER_DIRECTORY": str(folder / "rendered")}
    for number in range(rounds + 1):
        for way, flags in ways.items():
            took = bench.pulumi(folder, "preview", "--stack", "bench", *flags, **more)
            if number:  # the first round fills caches
                seconds[way].append(took)
    ours = [a / b for a, b in zip(seconds["ours"], seconds["none"], strict=True)]
    simply = [a / b for a, b in zip(seconds["simple"], seconds["none"], strict=True)]
    extra = [a - b for a, b in zip(seconds["ours"], seconds["none"], strict=True)]
    return {
        "resources": size,
        **{f"{way}_seconds": round(statistics.median(values), 2) for way, values in seconds.items()},
        "ours_ratio": round(statistics.median(ours), 3),
        "simple_ratio": round(statistics.median(simply), 3),
        "ours_ms_per_resource": round(1000 * statistics.median(extra) / size, 2),
        "rounds": rounds,
    }


def dev_cost(bench: Bench, scratch: Path, rounds: int) -> dict[str, Any]:
    """Seconds of a preview of the dev stack by our program, and by one that declares the same resources by hand."""
    providers = plugins(scratch / "providers", ("kubernetes", "pulumi-python"))
    ours = scratch / "dev"
    ours.mkdir()
    for name in ("__main__.py", "components", "policies", "rehearsal", "tests"):
        (ours / name).symlink_to(ROOT / name)
    settings = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    settings["runtime"]["options"]["virtualenv"] = str(Path(sys.prefix))
    settings["plugins"] = {"providers": providers}
    (ours / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
    bench.pulumi(ours, "stack", "init", "dev")
    (ours / "Pulumi.dev.yaml").write_text((ROOT / "Pulumi.dev.yaml").read_text())
    values = {
        "HOLDFAST_KUBECONFIG": "/nowhere/kubeconfig",
        "HOLDFAST_TRAINER_IMAGE": f"docker.io/holdfast/trainer@{ZEROS}",
        "HOLDFAST_OPERATOR_IMAGE": f"docker.io/holdfast/rehearsal-gpu-operator@{ZEROS}",
        "HOLDFAST_JOBSET_CHART": "./tests/unit/components/data/jobset-chart",
        "HOLDFAST_JOBSET_DIGEST": "0" * 64,
    }
    recording = scratch / "recording.jsonl"
    bench.pulumi(ours, "preview", "--stack", "dev", **values, **{RECORDING: str(recording)})
    made = [call for call in read(recording) if call.operation == "create"]
    bare = program(scratch / "bare", BARE + "".join(map(declaration, made)), providers)
    bench.pulumi(bare, "stack", "init", "bench")
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(rounds + 1):
        took = {
            "ours": bench.pulumi(ours, "preview", "--stack", "dev", **values),
            "bare": bench.pulumi(bare, "preview", "--stack", "bench"),
        }
        if number:
            for way, value in took.items():
                seconds[way].append(value)
    ratios = [a / b for a, b in zip(seconds["ours"], seconds["bare"], strict=True)]
    return {
        "stack": "dev",
        "resources": len(made),
        **{f"{way}_seconds": round(statistics.median(values), 2) for way, values in seconds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "rounds": rounds,
    }


def declaration(call: Recorded) -> str:
    """The statement that declares a recorded resource."""
    package, path, kind = call.type.split(":")
    known = {key: value for key, value in call.inputs.items() if key not in ("kind", "apiVersion")}
    if package == "pulumi-python":
        return f"kind({kind!r})(Nothing(), {call.name!r}, {known!r})\n"
    module = {"helm.sh/v3": "helm.v3"}.get(
        path, path.replace(".k8s.io", "").replace("rbac.authorization", "rbac").replace("/", ".")
    )
    arguments = ", ".join(f"{snake(key)}={value!r}" for key, value in known.items())
    return f"k8s.{module}.{kind}({call.name!r}, {arguments})\n"


def snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="100,500,1000,2000")
    parser.add_argument("--only", choices=("pack", "dev"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        scratch = Path(name)
        bench = Bench(scratch)
        if arguments.only != "pack":
            print(json.dumps(dev_cost(bench, scratch, arguments.rounds)), flush=True)
        if arguments.only != "dev":
            for size in arguments.sizes.split(","):
                print(json.dumps(pack_cost(bench, scratch, int(size), arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
