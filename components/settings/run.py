"""Training runs: one run is one Kubernetes Job on one pool, for one team."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.settings.amounts import Cpu, Memory
from components.settings.base import Flag, Settings, Whole, refusal
from components.settings.choices import RunController
from components.settings.formats import (
    AnnotationMap,
    Argument,
    DigestImage,
    DnsLabel,
    DnsSubdomain,
    EnvName,
    EnvValue,
    LabelMap,
    MountPath,
    PosixId,
    RunId,
    SecretKey,
    SubPath,
)

DEFAULT_COMMAND = ("/app/holdfast-run", "--")
DEFAULT_PROGRAM = "/app/train"
CHECKPOINT_ROOT = "/checkpoints"
RESERVED_MOUNTS = (CHECKPOINT_ROOT, "/tmp", "/dev/shm")

Gpus = Annotated[Whole, Field(ge=1, le=64)]
Seconds = Annotated[Whole, Field(ge=1, le=31_536_000)]


class RunRequests(Settings):
    """What the scheduler reserves for the trainer."""

    cpu: Cpu = "4"
    memory: Memory = "16Gi"
    gpus: Gpus | None = None
    """Whole GPUs; equal to `limits.gpus`. Default: what the limits say, or 1."""


class RunLimits(Settings):
    """What the trainer may use at most."""

    cpu: Cpu = "8"
    memory: Memory = "32Gi"
    gpus: Gpus | None = None
    """Whole GPUs; equal to `requests.gpus`. Default: what the requests say, or 1."""


class RunSecret(Settings):
    """A Secret of the team's namespace, by name: all its keys as variables, or one key as one variable."""

    name: DnsSubdomain
    key: SecretKey | None = None
    env: EnvName | None = None
    optional: Flag = False

    @model_validator(mode="after")
    def _key_with_variable(self) -> RunSecret:
        if self.key is None and self.env is not None:
            raise refusal(
                "an environment variable takes one key of the Secret",
                "add key, or remove env to take all keys",
                at="key",
            )
        if self.env is None and self.key is not None:
            raise refusal(
                "one key of a Secret needs the variable that it goes to",
                "add env, such as HF_TOKEN",
                at="env",
            )
        return self


class RunVolume(Settings):
    """A volume of the team's namespace for data sets or configuration."""

    name: DnsLabel
    mount_path: MountPath
    claim: DnsSubdomain | None = None
    config_map: DnsSubdomain | None = None
    secret: DnsSubdomain | None = None
    read_only: Flag = True
    sub_path: SubPath | None = None
    below_reserved: Flag = False
    """True: the mount may lie below /checkpoints, /tmp or /dev/shm. Never at them."""

    @model_validator(mode="after")
    def _one_source(self) -> RunVolume:
        given = [
            key for key in ("claim", "configMap", "secret") if getattr(self, _SNAKE.get(key, key)) is not None
        ]
        if not given:
            raise refusal(
                "it has no source", "write one of claim, configMap and secret with the object's name"
            )
        if len(given) > 1:
            raise refusal(
                f"it has {len(given)} sources: {', '.join(given)}",
                "keep one of them",
            )
        if given[0] != "claim" and not self.read_only:
            raise refusal(
                f"a volume from a {given[0]} can not be written to",
                "remove readOnly: false",
                at="readOnly",
                value=False,
            )
        return self


_SNAKE = {"configMap": "config_map"}


class RunSettings(Settings):
    """One training run. The defaults are those of the training contract."""

    id: RunId
    team: DnsLabel
    pool: DnsLabel
    image: DigestImage
    """The trainer's image, by digest."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[DnsSubdomain, ...] = ()
    attempt: Annotated[Whole, Field(ge=1, le=9999)] = 1
    """A declared retry: a larger number makes a new Job, since a Job can not be changed."""
    cancelled: Flag = False
    """True: the Job is removed, its checkpoints stay."""
    controller: RunController = "job"
    command: Annotated[tuple[Argument, ...], Field(min_length=1)] = DEFAULT_COMMAND
    """Exec form, never a shell: SIGTERM must reach the supervisor."""
    args: tuple[Argument, ...] | None = None
    """Default: `/app/train --resume --checkpoint-dir=/checkpoints/<id>`."""
    requests: RunRequests = RunRequests()
    limits: RunLimits = RunLimits()
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Plain values only; a secret is named under `secrets`."""
    secrets: tuple[RunSecret, ...] = ()
    volumes: tuple[RunVolume, ...] = ()
    service_account: DnsSubdomain | None = None
    """Default: the namespace's own. Its token is never mounted."""
    priority_class: DnsSubdomain | None = None
    labels: LabelMap = Field(default_factory=dict)
    annotations: AnnotationMap = Field(default_factory=dict)
    user_id: PosixId = 1000
    group_id: PosixId = 1000
    """Also the fsGroup of the volumes."""
    shared_memory: Memory = "2Gi"
    """Size of /dev/shm; it counts against the memory limit."""
    backoff_limit: Annotated[Whole, Field(ge=0, le=100)] = 2
    deadline_seconds: Seconds = 14_400
    """The whole run, waiting in Pending included."""
    keep_finished_seconds: Annotated[Whole, Field(ge=60, le=31_536_000)] = 86_400
    """How long a finished Job stays before Kubernetes deletes it (`ttlSecondsAfterFinished`)."""
    grace_seconds: Annotated[Whole, Field(ge=10, le=3_600)] = 120
    """Time from SIGTERM to SIGKILL."""
    unreachable_seconds: Annotated[Whole, Field(ge=0, le=3_600)] = 10
    """How long the Pod stays on a node that is not ready or unreachable."""

    @property
    def gpus(self) -> int:
        """Whole GPUs of the run: request and limit."""
        return self.requests.gpus or self.limits.gpus or 1

    @property
    def checkpoint_dir(self) -> str:
        """The run's own directory on the checkpoint volume, as the Pod sees it."""
        return f"{CHECKPOINT_ROOT}/{self.id}"

    @property
    def job_name(self) -> str:
        """`training-<id>`, with `-r<attempt>` from the second attempt on."""
        return f"training-{self.id}" + (f"-r{self.attempt}" if self.attempt > 1 else "")

    @property
    def program_args(self) -> tuple[str, ...]:
        """The container's args: the configured ones, or the training contract's."""
        if self.args is not None:
            return self.args
        return (DEFAULT_PROGRAM, "--resume", f"--checkpoint-dir={self.checkpoint_dir}")
