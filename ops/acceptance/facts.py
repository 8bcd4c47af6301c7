"""What an acceptance saw, as it was read: nothing here is judged. One JSON document, `holdfast.acceptance/1`.

Three clocks are in it, and each field says whose it has:

- server: times in API objects, whole seconds (`metav1.Time`), by the clock of the component that wrote them;
- pod: `at` of the events that a Pod's program prints, milliseconds, by its node's clock;
- driver: when this program asked or saw something, milliseconds. `Cluster.clock_offset_seconds` compares it
  with the API server's.

Unknown is None, an empty text or an empty list, and then `problems` says what could not be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationInfo

FORMAT: Literal["holdfast.acceptance/1"] = "holdfast.acceptance/1"


def _encodable(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """JSON can escape half of a surrogate pair, which no UTF-8 holds: a Pod that prints one breaks no file."""
    if info.mode == "json":  # which was UTF-8
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode(errors="replace"))
    return value


Json = Annotated[dict[str, Any], AfterValidator(_encodable)]
Moment = AwareDatetime


@dataclass(frozen=True)
class FaultKind:
    """One fault: its letter in the acceptance, its slug (the name for `--fault`), and what is done."""

    letter: str
    slug: str
    title: str


REFERENCE = "reference"
"""The `fault` of a run that nothing disturbs."""

FAULTS: tuple[FaultKind, ...] = (
    FaultKind("a", "pod-deletion", "the Pod is deleted after a full checkpoint"),
    FaultKind("b", "eviction", "the Pod is evicted by the Eviction API"),
    FaultKind("b", "drain", "the node is drained: cordoned, and its run's Pod evicted"),
    FaultKind("c", "kill-during-save", "the program is killed with SIGKILL in the middle of a save"),
    FaultKind("d", "zombie", "the kubelet stops, and the old process lives on while a new attempt runs"),
    FaultKind("e", "corrupted-checkpoint", "a byte of the newest checkpoint is flipped"),
    FaultKind("f", "two-finishers", "two attempts of one run finish at once"),
    FaultKind("g", "volume-full", "the volume is full during a save"),
    FaultKind("h", "many-preemptions", "more preemptions than the failure budget"),
    FaultKind("i", "crash", "the program crashes once"),
    FaultKind("i", "always-crashes", "the program crashes at every attempt"),
    FaultKind("i", "bad-input", "the program is given input that it can not use"),
    FaultKind("i", "no-progress", "no attempt saves a later step than the one before"),
)


def faults_named(words: Iterable[str]) -> list[FaultKind]:
    """The faults of letters and slugs, in the order of FAULTS. ValueError names the word that is neither."""
    wanted = list(words)
    for word in wanted:
        if not any(word in (kind.letter, kind.slug) for kind in FAULTS):
            letters = sorted({kind.letter for kind in FAULTS})
            raise ValueError(
                f"{word!r} is no fault: write a letter from {letters[0]} to {letters[-1]}, "
                f"or one of {', '.join(kind.slug for kind in FAULTS)}."
            )
    return [kind for kind in FAULTS if kind.letter in wanted or kind.slug in wanted]


class Fact(BaseModel):
    """Frozen, and strict about fields, so that a file of another format is not half understood."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeFact(Fact):
    """A node at the start. `gpus`: allocatable whole devices."""

    name: str
    kubelet: str = ""
    os_image: str = ""
    container_runtime: str = ""
    gpus: int = 0


class ClusterFact(Fact):
    """Where it ran. `clock_offset_seconds`: the API server's clock minus ours; None when it was not told."""

    server_version: str
    nodes: list[NodeFact] = []
    rehearsal: bool = False
    clock_offset_seconds: float | None = None


class RunFact(Fact):
    """What the run was told, and its limits. `env`: variables added for this scenario, as they were set."""

    steps: int
    checkpoint_every: int
    seed: int
    step_seconds: float
    save_seconds: float = 0.0
    background_saves: bool = True
    fail_at_step: int = 0
    """0: never."""
    gpus: int
    backoff_limit: int
    """With a JobSet: its `maxRestarts`."""
    deadline_seconds: int
    grace_seconds: int
    unreachable_seconds: int
    """`tolerationSeconds` for a node that is not ready or unreachable."""
    max_attempts_without_progress: int
    env: dict[str, str] = {}


class Action(Fact):
    """Something that the driver did to the cluster, the run or the machine.

    `what` is one of: create, delete-pod, evict, cordon, uncordon, kill-program, corrupt-and-kill, freeze,
    thaw, stop-kubelet, start-kubelet, add-taint, remove-taint, fill-volume, free-volume, create-second.
    """

    at: Moment
    """driver; before the request."""
    done_at: Moment | None = None
    """driver; after its answer. None: it was not answered."""
    what: str
    target: str
    detail: Json = {}
    """Words of the action: `step`, `file`, `offset`, `pid`, `pod_uid`, `node`, `taint`, `bytes`, … ."""


class Condition(Fact):
    """One condition of a Pod, Job or JobSet, as the API has it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    at: Moment | None = None
    """server; `lastTransitionTime`."""


class Attempt(Fact):
    """One Pod of the run. Times: server."""

    pod: str
    uid: str
    node: str = ""
    job: str = ""
    """The Job that made it; with a JobSet, the child Job."""
    job_uid: str = ""
    created_at: Moment | None = None
    scheduled_at: Moment | None = None
    """Condition PodScheduled."""
    sandbox_at: Moment | None = None
    """Condition PodReadyToStartContainers: volumes are mounted, sandbox and network are there."""
    started_at: Moment | None = None
    """The container's start."""
    deletion_requested_at: Moment | None = None
    """`deletionTimestamp` less the grace period."""
    deletion_grace_seconds: int | None = None
    finished_at: Moment | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    """Of the terminated container: Completed, Error, OOMKilled, … ."""
    phase: str = ""
    """The last one seen."""
    conditions: list[Condition] = []
    """The last ones seen; DisruptionTarget is here."""
    seen: dict[str, Moment] = {}
    """driver; when the watch first showed: created, scheduled, sandbox, started, deleting, finished, gone."""
    termination: Json = {}
    """The termination message: {code, step, generation, message} of the supervisor, else {message}."""
    events: list[Json] = []
    """The log's events in their order, each with `event` and `at` (pod)."""
    other_lines: list[str] = []
    """The last lines of the log that are no events, at most 40."""
    log_lines: int = 0
    log_sha256: str = ""
    """Of the log's text as it was read, UTF-8, lines ended by a newline."""
    log_source: Literal["", "api", "node"] = ""
    """api: streamed by the API server; node: the file in the node's /var/log/pods (a dead kubelet serves
    none)."""
    log_complete: bool = False
    """The log was read to the end of the container."""


class ObjectFact(Fact):
    """A Job or JobSet as it was last seen. `status` is the API's own object, whole."""

    kind: Literal["Job", "JobSet"]
    name: str
    uid: str
    created_at: Moment | None = None
    gone_at: Moment | None = None
    """driver; a JobSet's restart deletes the child Job of the round before."""
    status: Json = {}
    spec: Json = {}
    """Limits that count: backoffLimit, podFailurePolicy, failurePolicy, … (never the Pod template)."""


class Watched(Fact):
    """One change that the API showed. Kinds: Pod, Job, JobSet, Node, Event."""

    at: Moment
    """driver."""
    kind: str
    name: str
    what: str
    """A few words: `phase Running`, `condition Failed=True PodFailurePolicy`, `event FailedCreate: …`,
    `gone`."""


class Snapshot(Fact):
    """The run's directory at one moment: the output of `python3 -m trainer.recovery.inspect --verify`."""

    at: Moment
    """driver; when it was asked for."""
    done_at: Moment | None = None
    """driver; when the answer was there. The directory may have changed in between."""
    why: str
    """before-fault, during-save, after-fault, second-runs, end, … ."""
    inspect: Json
    sha256: str
    """Of the output's text."""


class Observation(Fact):
    """Anything else that was seen, by name.

    process-alive {pod, uid, node, pid, start_ticks, alive}: a host look at a Pod's program (rehearsal);
    node-state {node, ready, reason, taints}; disk {size, free}: bytes of the volume; heartbeat {…} of a
    generation that was fenced.
    """

    at: Moment
    what: str
    data: Json = {}


class Comparison(Fact):
    """Final artifacts beside the reference's, by the run's own files.

    `max_abs_difference`: over all tensors; None where the file is not of named tensors or has not been read.
    """

    artifact: str
    sha256: str = ""
    reference_sha256: str = ""
    max_abs_difference: float | None = None
    tensors: int = 0
    problem: str = ""


class Scenario(Fact):
    """One run and what was done to it."""

    letter: str
    """Empty for a reference."""
    fault: str
    """A slug of FAULTS, or `reference`."""
    title: str
    controller: Literal["job", "jobset"]
    run_id: str
    reference: str = ""
    """`run_id` of the run that it is compared with; empty where none ends in a result."""
    namespace: str = ""
    run: RunFact
    started_at: Moment
    """driver"""
    ended_at: Moment | None = None
    """driver"""
    done: list[Action] = []
    attempts: list[Attempt] = []
    """By creation."""
    objects: list[ObjectFact] = []
    volume: Snapshot | None = None
    """At the end, after the last Pod had ended."""
    snapshots: list[Snapshot] = []
    """Before the end, by time."""
    observations: list[Observation] = []
    watch: list[Watched] = []
    comparisons: list[Comparison] = []
    problems: list[str] = []
    """What could not be done or read, in sentences. A fault that was not made is here."""
    completed: bool = False
    """The driver did all that it had planned, and the run came to an end within the limit."""


class Skipped(Fact):
    """A fault that was not made, why, and what to do to have it."""

    letter: str
    fault: str
    controller: Literal["job", "jobset", ""] = ""
    reason: str
    what_to_do: str
    not_reached: bool = False
    """The acceptance ended before it: not a fault that can not be made here."""


class Acceptance(Fact):
    """The whole of one `./holdfast accept`."""

    format: Literal["holdfast.acceptance/1"] = FORMAT
    tool_version: str
    """Of the checkout: `git describe`, else the pinned version."""
    id: str
    """The value of the label holdfast.dev/acceptance on all that was made."""
    stack: str
    environment: str
    cluster: ClusterFact
    image: str
    """By digest."""
    started_at: Moment
    ended_at: Moment | None = None
    asked: list[str] = []
    """Slugs that were to be made."""
    references: list[Scenario] = []
    scenarios: list[Scenario] = []
    skipped: list[Skipped] = []
    problems: list[str] = Field(default_factory=list)
    """Of the acceptance as a whole: what was left behind, what interrupted it."""

    def reference_of(self, scenario: Scenario) -> Scenario | None:
        return next((run for run in self.references if run.run_id == scenario.reference), None)


def dump(acceptance: Acceptance) -> str:
    """The document's text, the same for the same facts."""
    return acceptance.model_dump_json(indent=1) + "\n"


def load(text: str | bytes) -> Acceptance:
    """Raises pydantic.ValidationError for a document of another format."""
    return Acceptance.model_validate_json(text)
