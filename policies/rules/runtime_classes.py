"""A Pod names a RuntimeClass that somebody makes, and that the node has a handler for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import Severity

from rules import charts
from rules.engine import Config, Resource, Violation, stack_policy
from rules.installs import Install, installs
from rules.pods import Workload, may_have_pods, workloads

_RUNTIME_CLASS = "kubernetes:node.k8s.io/v1:RuntimeClass"
_BY_CDI = frozenset({"nvidia-cdi", "nvidia-legacy"})
# Those of confidential containers (kata-qemu-nvidia-gpu-snp), which Kata's own chart makes.
_OF_KATA = "kata-"


def check_runtime_classes(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """NVIDIA's classes on clusters with a GPU Operator in the stack: there it is known who makes which."""
    found = installs(resources)
    named = {r.cluster for r in resources if any(_of_nvidia(w) for w in workloads(r))}
    charts.note_unnamed_charts(resources, named)
    for cluster in sorted({install.resource.cluster for install in found}):
        here = [install for install in found if install.resource.cluster == cluster]
        classes = [r for r in resources if r.type == _RUNTIME_CLASS and r.cluster == cluster]
        declared = {r.props["metadata"]["name"].text() or "" for r in classes}
        yield from _check_second_makers(here[0], classes)
        for r in resources:
            if r.cluster != cluster:
                continue
            for workload in workloads(r):
                name = workload.spec["runtimeClassName"].text() or ""
                if "nvidia" not in name or name.startswith(_OF_KATA) or name in declared:
                    continue
                problem = _problem_of(name, here[0])
                if problem:
                    yield Violation(f"{workload.title}: runtimeClassName {name} {problem}", r.urn)


def _of_nvidia(workload: Workload) -> bool:
    name = workload.spec["runtimeClassName"].peek_text() or ""
    return "nvidia" in name and not name.startswith(_OF_KATA)


def _check_second_makers(install: Install, classes: Sequence[Resource]) -> Iterator[Violation]:
    made = install.effective("operator.runtimeClass")
    for r in classes:
        name = r.props["metadata"]["name"].peek_text()
        handler = r.props["handler"].text()
        if made is None:
            install.setting("operator.runtimeClass").note()
        by_cdi = name in _BY_CDI and install.effective("cdi.enabled") is True
        # The operator's classes are named as their handlers.
        if name is not None and handler not in (None, name) and (name == made or by_cdi):
            yield Violation(
                f"{r.title} is made by {install.title} too, with handler '{name}' in place of '{handler}',"
                " and the two overwrite each other. Remove this one, or choose another name for it.",
                r.urn,
            )


def _problem_of(name: str, install: Install) -> str | None:
    made = install.effective("operator.runtimeClass")
    if made is None:
        install.setting("operator.runtimeClass").note()
        return None
    if name == made:
        return None
    if name not in _BY_CDI:
        return f"exists nowhere: {install.title} makes '{made}'. Write that, or set operator.runtimeClass."
    cdi, toolkit = install.effective("cdi.enabled"), install.effective("toolkit.enabled")
    for key, value in (("cdi.enabled", cdi), ("toolkit.enabled", toolkit)):
        if value is None:
            install.setting(key).note()
    if cdi is False:
        return f"exists nowhere: with cdi.enabled=false {install.title} makes '{made}' only. Write '{made}'."
    if toolkit is False:
        return (
            f"has no handler on the nodes: {install.title} makes the class, but with toolkit.enabled=false"
            f" nobody configures the runtime for it, and the Pod never starts. Write '{made}'."
        )
    return None


RUNTIME_CLASS_EXISTS = stack_policy(
    name="runtime-class-exists",
    description="Pods name a RuntimeClass that somebody makes and that their nodes have a handler for.",
    severity=Severity.HIGH,
    remediation=(
        "Write the value of the operator's operator.runtimeClass (nvidia by default). nvidia-cdi and"
        " nvidia-legacy work only where the operator's own toolkit configures the runtime."
    ),
    check=check_runtime_classes,
    wants=lambda type_: type_ == _RUNTIME_CLASS or charts.may_be_chart(type_) or may_have_pods(type_),
)
