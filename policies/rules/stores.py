"""Where checkpoints, models and data lie: not in public, encrypted, and not gone with one `pulumi destroy`.

A bucket is one of training if its name or a tag says so; shared filesystems are, in a program that trains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from pulumi_policy import EnforcementLevel, Severity

from rules.engine import Config, Resource, Violation, resource_policy, stack_policy
from rules.views import View

_TRAINING = re.compile(r"checkpoint|ckpt|model|weight|train|dataset|artifact|experiment", re.IGNORECASE)

# Sources of types and properties: the schemas of pulumi-aws 7.51, pulumi-gcp 10.2, azure-native 3.
_BUCKETS = frozenset(
    {
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketV2:BucketV2",
        "aws-native:s3:Bucket",
        "gcp:storage/bucket:Bucket",
    }
)
_S3_ACLS = frozenset({"aws:s3/bucketAcl:BucketAcl", "aws:s3/bucketAclV2:BucketAclV2"})
_S3_BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
_S3_POLICIES = frozenset({"aws:s3/bucketPolicy:BucketPolicy", "aws-native:s3:BucketPolicy"})
_GCS_MEMBERS = frozenset(
    {
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        "gcp:storage/bucketIAMBinding:BucketIAMBinding",
        "gcp:storage/bucketACL:BucketACL",
        "gcp:storage/bucketAccessControl:BucketAccessControl",
        "gcp:storage/defaultObjectAccessControl:DefaultObjectAccessControl",
    }
)
_AZURE_CONTAINER = re.compile(r"azure-native:storage(/\w+)?:BlobContainer|azure:storage/container:Container")
_EFS = frozenset({"aws:efs/fileSystem:FileSystem", "aws-native:efs:FileSystem"})
_FILESYSTEMS = _EFS | {
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem",
    "aws:fsx/ontapFileSystem:OntapFileSystem",
    "aws-native:fsx:FileSystem",
    "gcp:filestore/instance:Instance",
    "gcp:parallelstore/instance:Instance",
    "gcp:lustre/instance:Instance",
    "azure:netapp/volume:Volume",
}
_EBS = "aws:ebs/volume:Volume"
_STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
_VOLUME = "kubernetes:core/v1:PersistentVolume"
_PUBLIC_ACLS = frozenset(
    {"public-read", "public-read-write", "PublicRead", "PublicReadWrite", "publicRead", "publicReadWrite"}
)
_EVERYBODY = frozenset({"allUsers", "allAuthenticatedUsers"})
_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


def check_public(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Buckets of training, and what opens them: ACLs, policies, members, switched off blocks."""
    training = {r.urn for r in resources if r.type in _BUCKETS and _is_of_training(r)}
    for r in resources:
        opened = next(_openings(r), None)
        if not opened and not r.unknowns.paths:
            continue
        known = r.urn in training or training.intersection(r.depends_on) or _names_training(r)
        if not known:
            r.unknowns.paths.clear()
            if opened:
                _note_names(r)
        elif opened:
            yield Violation(
                f"{r.title} {opened}, so anybody can read checkpoints and models, or replace them by others"
                " that the next run then loads. Remove it, and give access to the run's own identity.",
                r.urn,
            )


def _is_of_training(r: Resource) -> bool:
    words = [r.name, *(r.props[key].peek_text() or "" for key in ("bucket", "bucketName", "name"))]
    # AWS has tags, Cloud Control a list of them, Google labels.
    for tags in (r.props["tags"], r.props["labels"]):
        words += [tags[key].peek_text() or "" for key in tags.peek_keys()]
        words += [tag["value"].peek_text() or "" for tag in tags.peek_elements()]
    return any(_TRAINING.search(word) for word in words)


def _note_names(r: Resource) -> None:
    """A name or a tag that is not known yet may say that the bucket is one of training."""
    for key in ("bucket", "bucketName", "containerName", "name"):
        r.props[key].value()
    for tags in (r.props["tags"], r.props["labels"]):
        for key in tags.keys():
            tags[key].value()
        for tag in tags.peek_elements():
            tag["value"].value()


def _names_training(r: Resource) -> bool:
    if r.type in _BUCKETS or r.type in _FILESYSTEMS:
        return False
    return any(_TRAINING.search(word) for word in (r.name, _bucket(r)))


def _bucket(r: Resource) -> str:
    return next((t for key in ("bucket", "containerName", "name") if (t := r.props[key].peek_text())), "")


def _openings(r: Resource) -> Iterator[str]:
    props = r.props
    if r.type in _BUCKETS or r.type in _S3_ACLS:
        for key in ("acl", "accessControl", "predefinedAcl"):
            if props[key].text() in _PUBLIC_ACLS:
                yield f"has the ACL {props[key].peek()}"
        for grant in props["accessControlPolicy"]["grants"].peek_elements():
            if (grant["grantee"]["uri"].peek_text() or "").endswith(("/AllUsers", "/AuthenticatedUsers")):
                yield "grants access to everybody"
        # Without this object S3 blocks everything; with it, all but what it names.
        if props["publicAccessBlockConfiguration"].exists:
            yield from _unblocked(props["publicAccessBlockConfiguration"])
    elif r.type == _S3_BLOCK:
        yield from _unblocked(props)
    elif r.type in _S3_POLICIES:
        if _is_open_policy(props["policyDocument" if "native" in r.type else "policy"]):
            yield "allows everybody (Principal *)"
    elif r.type in _GCS_MEMBERS:
        members = [props["member"], *props["members"].elements(), props["entity"]]
        for member in [*members, *props["roleEntities"].elements()]:
            if (member.text() or "").rsplit(":", 1)[-1] in _EVERYBODY:
                yield f"is for {member.peek()}"
        if props["predefinedAcl"].text() in _PUBLIC_ACLS:
            yield f"has the ACL {props['predefinedAcl'].peek()}"
    elif _AZURE_CONTAINER.fullmatch(r.type):
        access = props["publicAccess"] if props["publicAccess"].exists else props["containerAccessType"]
        if (access.text() or "none").lower() not in ("none", "private"):
            yield f"has public access: {access.peek()}"


def _unblocked(blocks: View) -> Iterator[str]:
    """What a public access block does not block: whatever it does not name."""
    for key in _BLOCKS:
        value = blocks[key].value()
        if value in (False, "false") or not blocks[key].exists:
            yield f"has {key}: false" if blocks[key].exists else f"does not set {key}, which means false"


def _is_open_policy(policy: View) -> bool:
    """Whether a statement allows everybody without a condition; a policy is a text of JSON or an object."""
    text = policy.value() if not policy.is_mapping else None
    if isinstance(text, str):
        try:
            policy = policy.over(json.loads(text))
        except ValueError:
            return False
    statements = policy["Statement"]
    for statement in statements.elements() or [statements]:
        if statement["Effect"].value() != "Allow" and not statement["Effect"].unknown:
            continue
        if statement["Condition"].exists and not statement.unknown:
            continue
        principal = statement["Principal"]
        given = principal["AWS"] if principal.is_mapping else principal
        named = [each.value() for each in given.peek_elements()] or [given.value()]
        if "*" in named and statement["Effect"].peek() == "Allow":
            return True
    return False


def _is_on(switch: View) -> bool:
    """The clouds' providers take the text "true" for the boolean: programs in YAML have it."""
    return switch.value() in (True, "true")


def check_encryption(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Filesystems and disks that are not encrypted unless one says so. FSx, Google and Azure always
    encrypt.
    """
    props = resource.props
    if resource.type in _EFS or (resource.type == _EBS and _is_of_training(resource)):
        encrypted = props["encrypted"]
        # With a key of one's own EFS encrypts too.
        if not _is_on(encrypted) and not encrypted.unknown and not props["kmsKeyId"].exists:
            shown = "is false" if encrypted.exists else "is not set, which means false"
            yield Violation(
                f"{resource.title}: encrypted {shown}, and checkpoints and data lie in the clear. Set"
                " encrypted: true (a filesystem can not be encrypted later)."
            )
    elif resource.type == _STORAGE_CLASS:
        if str(props["parameters"]["encrypted"].value()).lower() in ("false", "no", "0"):
            yield Violation(
                f"{resource.title}: parameters.encrypted is false, and what claims of this class hold lies in"
                " the"
                ' clear. Set it to "true".'
            )
    elif resource.type == _VOLUME:
        transit = props["spec"]["csi"]["volumeAttributes"]["encryptInTransit"]
        if str(transit.value()).lower() == "false":
            yield Violation(
                f"{resource.title}: encryptInTransit is false, and checkpoints cross the network in the"
                " clear. Remove it: the EFS driver encrypts unless told not to."
            )


def check_forced_destroy(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Buckets of training that a destroy empties."""
    if resource.type in _BUCKETS and not _is_of_training(resource):
        if resource.props["forceDestroy"].peek() in (True, "true"):
            _note_names(resource)
    elif resource.type in _BUCKETS:
        if _is_on(resource.props["forceDestroy"]):
            yield Violation(
                f"{resource.title}: forceDestroy is true, so a destroy or a replacement deletes every"
                " checkpoint in it. Remove it; an empty bucket can be destroyed without."
            )


def check_protection(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Filesystems, and buckets of training, with neither Pulumi's nor the cloud's protection."""
    of_training = resource.type in _BUCKETS and _is_of_training(resource)
    if not of_training and resource.type not in _FILESYSTEMS:
        return
    own = [resource.props[key] for key in ("deletionProtectionEnabled", "deletionProtection")]
    if resource.protect or any(_is_on(each) or each.unknown for each in own):
        return
    yield Violation(
        f"{resource.title} holds state, but a destroy or a replacement deletes it. Set the resource option"
        " protect: true (with retainOnDelete, which policies do not see, make an exception for it)."
    )


def _is_store(type_: str) -> bool:
    return type_ in _BUCKETS or type_ in _FILESYSTEMS


def _opens_stores(type_: str) -> bool:
    named = (type_ in _S3_ACLS, type_ in (_S3_BLOCK, *_S3_POLICIES), type_ in _GCS_MEMBERS, type_ in _BUCKETS)
    return any(named) or _AZURE_CONTAINER.fullmatch(type_) is not None


STORES_ARE_PRIVATE = stack_policy(
    name="checkpoints-private",
    description="Buckets with checkpoints, models or training data are not open to everybody.",
    severity=Severity.CRITICAL,
    remediation=(
        "Remove public ACLs, policies and members, leave all four public access blocks on, and give access"
        " to the run's own identity (EKS Pod Identity or IRSA, workload identity)."
    ),
    check=check_public,
    wants=_opens_stores,
)

STORES_ARE_ENCRYPTED = resource_policy(
    name="checkpoints-encrypted",
    description="Filesystems and disks that can hold checkpoints are encrypted, at rest and on the way.",
    severity=Severity.HIGH,
    remediation="Set encrypted: true on EFS filesystems and EBS volumes, and leave encryptInTransit on.",
    check=check_encryption,
    wants=lambda type_: type_ in _EFS or type_ in (_EBS, _STORAGE_CLASS, _VOLUME),
)

NO_FORCED_DESTROY = resource_policy(
    name="no-forced-destroy",
    description="A bucket with checkpoints is not emptied by a destroy.",
    severity=Severity.HIGH,
    remediation="Remove forceDestroy.",
    check=check_forced_destroy,
    wants=lambda type_: type_ in _BUCKETS,
)

STATE_IS_PROTECTED = resource_policy(
    name="state-is-protected",
    description="What holds checkpoints has the resource option protect.",
    severity=Severity.MEDIUM,
    remediation="Set protect: true on filesystems and on buckets with checkpoints.",
    check=check_protection,
    level=EnforcementLevel.ADVISORY,
    wants=_is_store,
)
