"""Where a container writes its checkpoints, as far as its arguments, environment and mounts tell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from rules.pods import Workload
from rules.views import View

_WORD = re.compile(r"checkpoint|ckpt", re.IGNORECASE)
_PLACE = re.compile(r"dir|path|folder|root|save|out", re.IGNORECASE)
# Options that only read a checkpoint say so in their first word: --load-checkpoint, --resume_from_checkpoint.
_READS = re.compile(r"^(load|resume|restore|init|from|pretrained|base)", re.IGNORECASE)
# Options of common trainers whose target holds the checkpoints although the name does not say so:
# Hugging Face's --output_dir, Megatron's --save, Lightning's --default_root_dir.
_OUTPUT_OPTIONS = frozenset({"output_dir", "save_dir", "save", "default_root_dir"})
# Programs with such options that do not train: lm_eval, trtllm-build, convert_checkpoint.py, whisper.
_OTHER_WORK = re.compile(
    r"eval|bench|convert|export|build|serv|infer|generat|quantiz|predict|score|preproc|prepare|tokeni[sz]"
    r"|embed|extract|download|transcri|whisper|caption|sampl|render|merge",
    re.IGNORECASE,
)
_TRAINS = re.compile(r"train|tune|resume", re.IGNORECASE)
# $(NAME) is expanded by Kubernetes, $NAME and ${NAME} by a shell.
_VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")
# A server mounts weights to read there: ComfyUI's models/checkpoints, for one.
_SERVERS = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
_MODELS = re.compile(r"(^|/)(models?|weights|pretrained)(/|$)", re.IGNORECASE)
_ONE_FILE = re.compile(r"\.(pt|pth|bin|ckpt|safetensors|onnx)$", re.IGNORECASE)


@dataclass(frozen=True)
class Mount:
    """One volumeMount; `view` is its own place in the container."""

    path: str
    volume: View
    view: View


@dataclass(frozen=True)
class CheckpointPlace:
    """A place of checkpoints; `why` tells how it is known, no `mount` means the container's own files."""

    path: str
    why: str
    mount: Mount | None


def is_checkpoint_option(option: str) -> bool:
    """Whether a command line option (without dashes) names a place that checkpoints are written to."""
    name = option.rsplit(".", 1)[-1].replace("-", "_").lower()
    if name in _OUTPUT_OPTIONS:
        return True
    if _WORD.search(option) is None or _READS.match(name):
        return False
    return _PLACE.search(option) is not None or name in ("checkpoint", "checkpoints", "ckpt", "ckpts")


def paths_in_arguments(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """(absolute path, option) for `--option=path`, `--option path`, `option=path`, and in shell lines."""
    words: list[str] = []
    for argument in arguments:
        words.extend(_split(argument) if " " in argument.strip() else [argument])
    other_work = _does_other_work(words)
    for position, word in enumerate(words):
        option, equals, value = word.partition("=")
        if not equals:
            if not option.startswith("-") or position + 1 == len(words):
                continue
            value = words[position + 1]
        if (
            value.startswith("/")
            and is_checkpoint_option(option.lstrip("-"))
            and not _is_one_file(option, value)
            and not (other_work and _WORD.search(option) is None)
        ):
            yield value, option


def _does_other_work(words: list[str]) -> bool:
    """Whether the program is known by its name as none that trains. Options' own values tell nothing."""
    programs = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not word.startswith("-") and (not before.startswith("-") or before in ("-c", "-m", "-u", "--"))
    ]
    trains = any(_TRAINS.search(word) for word in words)
    return not trains and any(_OTHER_WORK.search(word) for word in programs)


def _split(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()


def _is_one_file(option: str, value: str) -> bool:
    """--checkpoint-path=/models/base.pt names weights to read, unless the option speaks of saving."""
    return _ONE_FILE.search(value) is not None and re.search("save|out", option, re.IGNORECASE) is None


def checkpoint_places(workload: Workload, container: View) -> list[CheckpointPlace]:
    """The places of one container, each once; unknown arguments and mounts are noted."""
    mounts = _mounts(container)
    found: dict[str, CheckpointPlace] = {}
    for path, why in [*_argument_paths(container), *_environment_paths(container)]:
        found.setdefault(path, CheckpointPlace(path, why, _mount_of(path, mounts)))
    covered = {place.mount.path for place in found.values() if place.mount}
    for mount in mounts:
        if mount.path in covered or (workload.kind in _SERVERS and _MODELS.search(mount.path)):
            continue
        if _WORD.search(mount.path):
            found.setdefault(mount.path, CheckpointPlace(mount.path, "mountPath", mount))
        for key in ("subPath", "subPathExpr"):
            if _WORD.search(mount.view[key].text() or ""):
                found.setdefault(mount.path, CheckpointPlace(mount.path, key, mount))
    # What is mounted for reading (the weights to start from or to judge) is no place to write to.
    return [place for place in found.values() if not (place.mount and _reads_only(workload, place.mount))]


def _reads_only(workload: Workload, mount: Mount) -> bool:
    if mount.view["readOnly"].peek() is True:
        return True
    name = mount.volume.peek_text()
    return any(
        volume["name"].peek_text() == name and volume["persistentVolumeClaim"]["readOnly"].peek() is True
        for volume in workload.spec["volumes"].peek_elements()
    )


def _argument_paths(container: View) -> Iterator[tuple[str, str]]:
    values = {
        variable["name"].peek_text(): variable["value"].peek_text()
        for variable in container["env"].peek_elements()
    }

    def expanded(argument: str) -> str:
        return _VARIABLE.sub(lambda match: values.get(match[match.lastindex or 0]) or match[0], argument)

    arguments = [v.text() or "" for part in ("command", "args") for v in container[part].elements()]
    yield from paths_in_arguments([expanded(argument) for argument in arguments])


def _environment_paths(container: View) -> Iterator[tuple[str, str]]:
    for variable in container["env"].elements():
        name = variable["name"].peek_text() or ""
        if _WORD.search(name) is None or re.search(
            "LOAD|RESUME|RESTORE|INIT|PRETRAINED", name, re.IGNORECASE
        ):
            continue
        value = variable["value"].text() or ""
        if value.startswith("/") and not _is_one_file(name, value):
            yield value, f"env {name}"


def _mounts(container: View) -> list[Mount]:
    found = []
    for view in container["volumeMounts"].elements():
        path = view["mountPath"].text()
        if path:
            found.append(Mount(path, view["name"], view))
    return found


def _mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount with the longest mountPath at or above the path."""
    target = PurePosixPath(path.split("$(")[0])
    above = [m for m in mounts if target.is_relative_to(PurePosixPath(m.path))]
    return max(above, key=lambda m: len(PurePosixPath(m.path).parts), default=None)
