"""All rules of the pack in one list, and their words for documents."""

from __future__ import annotations

from dataclasses import dataclass

from pulumi_policy import EnforcementLevel, Policy, StackValidationPolicy

from rules.chart_pins import CHART_PINNED, CRDS_FOLLOW_CHART
from rules.checkpoints import CHECKPOINT_CLAIM, CHECKPOINT_VOLUME
from rules.critical_pods import CRITICAL_PODS
from rules.dra import PLUGIN_OR_DRA
from rules.exceptions import SETTING
from rules.gpu_requests import WHOLE_GPUS
from rules.images import IMAGE_BY_DIGEST
from rules.job_endings import (
    FINISHED_JOB_STAYS,
    KUEUE_OWNS_SUSPEND,
    NO_DEADLINE,
    SIGNALS_ARRIVE,
    TIME_TO_SAVE,
)
from rules.owners import SINGLE_OWNER
from rules.pod_security import POD_SECURITY
from rules.pool_images import DRIVER_VERSION_PINNED, GPU_POOL_IMAGE
from rules.pool_taints import POOL_TAINT_TOLERATED
from rules.privileges import GPU_POD_NOT_ROOT, GPU_POD_PRIVILEGES, GPUS_BY_REQUEST
from rules.profiles import PROFILE_AGREEMENT
from rules.quota_fit import QUOTA_FIT
from rules.quota_keys import QUOTA_KEYS_ENFORCE
from rules.retries import KILLS_COUNT, ONE_WRITER, PREEMPTION_NOT_COUNTED, SPOT_NEEDS_JOBSET
from rules.runtime_classes import RUNTIME_CLASS_EXISTS
from rules.sharing import SHARING_IS_NO_WALL
from rules.stores import NO_FORCED_DESTROY, STATE_IS_PROTECTED, STORES_ARE_ENCRYPTED, STORES_ARE_PRIVATE
from rules.tolerations import TOLERATION_NEEDS_GPU

POLICIES: tuple[Policy, ...] = (
    # Who owns the GPU stack
    SINGLE_OWNER,
    PROFILE_AGREEMENT,
    GPU_POOL_IMAGE,
    DRIVER_VERSION_PINNED,
    POOL_TAINT_TOLERATED,
    CRITICAL_PODS,
    RUNTIME_CLASS_EXISTS,
    PLUGIN_OR_DRA,
    CHART_PINNED,
    CRDS_FOLLOW_CHART,
    # What a Pod asks for
    IMAGE_BY_DIGEST,
    WHOLE_GPUS,
    TOLERATION_NEEDS_GPU,
    QUOTA_KEYS_ENFORCE,
    QUOTA_FIT,
    SHARING_IS_NO_WALL,
    # Whether a run survives
    CHECKPOINT_VOLUME,
    CHECKPOINT_CLAIM,
    ONE_WRITER,
    PREEMPTION_NOT_COUNTED,
    KILLS_COUNT,
    SPOT_NEEDS_JOBSET,
    FINISHED_JOB_STAYS,
    TIME_TO_SAVE,
    NO_DEADLINE,
    SIGNALS_ARRIVE,
    KUEUE_OWNS_SUSPEND,
    # What it can reach, and who can reach it
    POD_SECURITY,
    GPU_POD_PRIVILEGES,
    GPU_POD_NOT_ROOT,
    GPUS_BY_REQUEST,
    STORES_ARE_PRIVATE,
    STORES_ARE_ENCRYPTED,
    NO_FORCED_DESTROY,
    STATE_IS_PROTECTED,
)


@dataclass(frozen=True)
class Entry:
    """A rule in words. `scope` is "stack" (over all resources) or "resource"; `settings` are config keys;
    `advisory` rules only tell, and stop nothing.
    """

    name: str
    scope: str
    severity: str
    description: str
    remediation: str
    url: str
    settings: tuple[str, ...]
    advisory: bool


def entries() -> list[Entry]:
    """One entry per policy, in the pack's order."""
    return [
        Entry(
            name=policy.name,
            scope="stack" if isinstance(policy, StackValidationPolicy) else "resource",
            severity=policy.severity.value if policy.severity else "",
            description=policy.description,
            remediation=policy.remediation_steps or "",
            url=policy.url or "",
            settings=_settings(policy),
            advisory=policy.enforcement_level is EnforcementLevel.ADVISORY,
        )
        for policy in POLICIES
    ]


def _settings(policy: Policy) -> tuple[str, ...]:
    """The rule's own settings; every rule has exceptions besides."""
    schema = policy.config_schema
    return tuple(key for key in schema.properties if key != SETTING) if schema else ()
