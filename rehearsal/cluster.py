"""The rehearsal cluster as a whole: up, down, what is broken, and what a shell needs to use it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from rehearsal import (
    cgroups,
    control_plane,
    machine,
    mount_points,
    network,
    node,
    node_images,
    node_roots,
    processes,
    toolchain,
    volumes,
)
from rehearsal.addresses import addresses
from rehearsal.errors import RehearsalError
from rehearsal.pki import CONTEXT
from rehearsal.progress import Progress, Step
from rehearsal.state import CHECKOUT, lock, read_record, state_dir
from rehearsal.toolchain import build
from rehearsal.waiting import wait_until

CLUSTER_PROGRAMS = (*control_plane.PROGRAMS, *node.PROGRAMS, "containerd-shim-runc-v2", "ctr", "coredns")
PROVISIONER = "provisioner"
FROM_TOOLCHAIN = ("coredns", "jobset")
IMAGES_OF_POOL = {
    "system": ("pause", "gpu-operator", *FROM_TOOLCHAIN),
    "gpu": ("pause", "gpu-operator", "trainer"),
}
IMAGES = ("pause", "gpu-operator", "trainer", *FROM_TOOLCHAIN)


@dataclass(frozen=True)
class Fault:
    """Something of the cluster that should run and does not."""

    what: str
    sentence: str
    log: Path


def exists() -> bool:
    """Whether `up` has ever begun here and `down` has not ended it."""
    return (state_dir() / "kubeconfig").exists()


def up(progress: Progress) -> None:
    """Bring the cluster up: make what is missing, start what has ended, leave alone what runs.

    Raises RehearsalError naming what the machine lacks, or what was not ready in time.
    """
    machine.require()
    with lock():
        machine.install_packages(progress)
        with ThreadPoolExecutor(max_workers=16) as pool:
            # Images need the network most of the time, builds the processor: side by side they take the longer of both.
            images = {name: pool.submit(node_images.build, name, progress) for name in IMAGES if name not in FROM_TOOLCHAIN}
            programs = _programs(progress, images.values(), pool)
            toolchain.link({name: programs[name] for name in toolchain.PULUMI_PROGRAMS})
            images |= {name: pool.submit(node_images.build, name, progress) for name in FROM_TOOLCHAIN}
            _start(progress, programs, images, pool)
            node_images.record({name: future.result() for name, future in images.items()})


def _programs(
    progress: Progress, images: Collection[Future[node_images.Image]], pool: ThreadPoolExecutor
) -> dict[str, Path]:
    """All third-party programs by name, in two lanes: what the cluster runs, and Pulumi and then what is left of the other."""
    found: dict[str, Path] = {}
    left = deque((*CLUSTER_PROGRAMS, "jobset"))
    failed: list[BaseException] = []

    def lane(own: Iterable[str]) -> None:
        try:
            for name in chain(own, _drain(left)):
                if failed:
                    return
                found.update(toolchain.ensure([name], progress))
                _raise_failed(images)
        except RehearsalError as error:
            failed.append(error)
            build.stop()

    lanes = [pool.submit(lane, own) for own in ((), toolchain.PULUMI_PROGRAMS)]
    try:
        for each in lanes:
            each.result()
    except BaseException as error:  # Ctrl-C too
        failed.append(error)
        build.stop()
        raise
    finally:
        wait(lanes)
        build.allow()
    if failed:
        raise failed[0]  # the second is what was stopped because of the first
    return found


def _drain(queue: deque[str]) -> Iterator[str]:
    """What is in the queue, each for one of those who take from it at the same time."""
    with contextlib.suppress(IndexError):
        while True:
            yield queue.popleft()


def _raise_failed(futures: Iterable[Future[node_images.Image]]) -> None:
    """An image that can not be built is told now, not after half an hour of other builds."""
    for future in futures:
        if future.done():
            future.result()


def _start(
    progress: Progress, programs: dict[str, Path], images: dict[str, Future[node_images.Image]], pool: ThreadPoolExecutor
) -> None:
    from rehearsal import addons

    plan = addresses()
    who = control_plane.identities(plan)

    restarted: dict[str, datetime] = {}

    def start_node(each: node.Node, step: Step) -> None:
        if not processes.running(each.process("kubelet")):
            restarted[each.name] = datetime.now(UTC)
        needed = [images[name].result() for name in IMAGES_OF_POOL[each.pool]]
        if not each.containerd_root.exists():
            node_roots.seed(node_roots.ensure(needed, programs, progress), each.containerd_root)
        node.start(each, plan, who, programs, step)
        node_images.ensure_imported(each, needed, programs)

    with progress.step("Starting the control plane", 10) as step:
        mount_points.make(node.FOLDERS)
        volumes.share()
        network.up(plan, len(node.NODES))
        starts = {each: pool.submit(start_node, each, step) for each in node.NODES}
        control_plane.start(plan, who, programs, step)
        processes.start(PROVISIONER, [sys.executable, "-m", "rehearsal.provisioner"], environment=_own_environment())
    with progress.step("Starting the nodes", 15) as step:
        for start in starts.values():
            start.result()
        addons.install(plan, images["coredns"].result().reference)
        wait_until(lambda: _unready_nodes(restarted), limit_seconds=90, step=step, fix="Run `./holdfast status`.")
        wait_until(addons.dns_problem, limit_seconds=90, step=step, fix="Run `./holdfast status`.")


def _own_environment() -> dict[str, str]:
    """The provisioner finds this rehearsal's state by the same variables as the command that started it."""
    return {**os.environ, "HOLDFAST_STATE": str(state_dir()), "PYTHONPATH": str(CHECKOUT)}


def _unready_nodes(restarted: Mapping[str, datetime]) -> str:
    """The nodes that are not ready, by name. What the API says of a node before its kubelet's restart does not count."""
    from rehearsal.api import core, leases

    ready = {
        found.metadata.name
        for found in core().list_node().items
        if any(c.type == "Ready" and c.status == "True" for c in found.status.conditions or [])
    }
    renewed = leases("kube-node-lease") if restarted else {}
    never = datetime.min.replace(tzinfo=UTC)
    silent = {name for name, began in restarted.items() if renewed.get(name, never) < began}
    return ", ".join(each.name for each in node.NODES if each.name not in ready - silent)


def _expected() -> Iterator[tuple[str, str]]:
    for name in control_plane.NAMES:
        yield name, f"{name} of the control plane"
    yield PROVISIONER, "the volume provisioner"
    for each in node.NODES:
        for program in ("node", *node.PROGRAMS):
            what = "the namespaces" if program == "node" else program
            yield each.process(program), f"{what} of node {each.name}"


def faults() -> list[Fault]:
    """Every process of the cluster that has ended, by name, with its last words. Empty where all run."""
    found = []
    for name, what in _expected():
        if not processes.running(name):
            words = processes.last_words(name, lines=1)
            sentence = f"{what[0].upper()}{what[1:]} is not running. {words}".strip()
            found.append(Fault(name, f"{sentence} `./holdfast up` starts it again.", processes.log_path(name)))
    return found


def images() -> dict[str, str]:
    """Image name -> reference by digest, as this rehearsal's nodes have them."""
    return read_record("images")


def environment() -> dict[str, str]:
    """The variables with which plain `pulumi` and `kubectl` work on this cluster, with the policy pack on."""
    if not exists():
        raise RehearsalError("There is no rehearsal cluster yet.", "Run `./holdfast up` first.")
    known = images()
    if not {"trainer", "gpu-operator", "jobset"} <= set(known):
        raise RehearsalError("The rehearsal cluster is half made: its images are not there.", "Run `./holdfast up`.")
    pulumi = state_dir() / "pulumi"
    return {
        **toolchain.tool_environment(pulumi / "home", pulumi / "backend"),
        "PULUMI_OPTION_POLICY_PACK": str(CHECKOUT / "policies"),
        "KUBECONFIG": str(state_dir() / "kubeconfig"),
        "HOLDFAST_KUBECONFIG": str(state_dir() / "kubeconfig"),
        "HOLDFAST_CONTEXT": CONTEXT,
        "HOLDFAST_TRAINER_IMAGE": known["trainer"],
        "HOLDFAST_OPERATOR_IMAGE": known["gpu-operator"],
        # JobSet's chart joins repository and tag with a colon, which a digest fits behind "@sha256".
        "HOLDFAST_JOBSET_DIGEST": known["jobset"].rpartition(":")[2],
        "HOLDFAST_JOBSET_CHART": str(toolchain.chart("jobset")),
    }


def down(progress: Progress) -> None:
    """Remove every trace of the cluster: processes, mounts, namespaces, interfaces, rules, cgroups and files.

    The caches (toolchain, images) stay. Safe to call at any time, on a half-made or broken cluster too.
    """
    if not state_dir().exists():
        progress.say("There is no rehearsal cluster.")
        return
    if sys.platform != "linux" or os.geteuid() != 0:
        raise RehearsalError("Taking a rehearsal cluster down needs root.", "Run it as root.")
    with lock(), progress.step("Taking the rehearsal cluster down", 6) as step:
        _stop_everything(step)
        cgroups.remove()
        network.down(len(node.NODES))
        mount_points.remove()
        volumes.unmount()
        shutil.rmtree(state_dir())
        with contextlib.suppress(OSError):
            state_dir().parent.rmdir()  # only where it is empty: another checkout's rehearsal may be beside ours


def _stop_everything(step: Step) -> None:
    """Nodes first: the end of a node's first process is the end of all in its pid namespace."""
    for each in node.NODES:
        step.note(f"ending {each.name}")
        processes.stop(each.process("node"), grace_seconds=0)
        for program in node.PROGRAMS:
            processes.stop(each.process(program), grace_seconds=0)
    for name in (PROVISIONER, *reversed(control_plane.NAMES)):
        step.note(f"ending {name}")
        processes.stop(name)
