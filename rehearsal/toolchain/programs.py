"""Which third-party programs the project uses, in which version, and how each is had. One table."""

from __future__ import annotations

from dataclasses import dataclass

PULUMI = "v3.274.1"
PROVIDER = "v4.25.0"  # the same as pulumi-kubernetes in requirements.in
KUBERNETES = "v1.37.2"
ETCD = "v3.7.3"
CONTAINERD = "v2.4.2"
COREDNS = "v1.15.0"
PULUMI_YAML = "v1.25.0"
JOBSET = "v0.11.1"

_KUBERNETES_FLAGS = tuple(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in {
        "gitVersion": KUBERNETES,
        "gitMajor": "1",
        "gitMinor": "37",
        "gitTreeState": "clean",
    }.items()
)
_CONTAINERD_FLAGS = (f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD}",)
_PULUMI_FLAGS = (f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={PULUMI}",)
_PROVIDER_FLAGS = (f"-X github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version={PROVIDER.lstrip('v')}",)
# Packages that nothing here calls much: API types and clients that a generator wrote, clients of clouds that no rehearsal
# asks. One list for all programs, so that what two of them have in common is compiled once.
HARDLY_RUN = (
    "cloud.google.com/go/...",
    "github.com/Azure/...",
    "github.com/aws/...",
    "github.com/pulumi/pulumi-kubernetes/sdk/v4/...",
    "google.golang.org/api/...",
    "google.golang.org/genproto/...",
    "k8s.io/client-go/applyconfigurations/...",
    "k8s.io/client-go/informers/...",
    "k8s.io/client-go/kubernetes/...",
    "k8s.io/client-go/listers/...",
    "k8s.io/kubernetes/pkg/apis/...",
    "k8s.io/kubernetes/pkg/generated/...",
)


@dataclass(frozen=True)
class Program:
    """One executable.

    `module` is the folder below modules/ whose go.mod and go.sum pin it; `package` what is built there.
    `build_seconds` is what a build took on two idle cores, for the estimate that is shown: in the order in which `up` builds
    them, so the first of a module pays for what they share.
    `fits` is the range of versions accepted from PATH: `minor` (same major and minor) or `major` (same major, not older).
    `copied` names files of the pinned module `copied_from` that the build needs beside the module's own; `kept` names folders
    of it that stay beside the program, such as its Helm chart.
    """

    name: str
    version: str
    module: str
    package: str
    build_seconds: int
    flags: tuple[str, ...] = ()
    fits: str = "minor"
    version_command: tuple[str, ...] = ("--version",)
    copied_from: str = ""
    copied: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def _kubernetes(name: str, seconds: int, version_command: tuple[str, ...] = ("--version",)) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(
        name, KUBERNETES, "kubernetes", package, seconds, _KUBERNETES_FLAGS, version_command=version_command
    )


def _containerd(name: str, seconds: int) -> Program:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Program(
        name, CONTAINERD, "containerd", package, seconds, _CONTAINERD_FLAGS, fits="major",
        version_command=("-v",) if name == "containerd-shim-runc-v2" else ("--version",),
    )  # fmt: skip


_PROVIDER_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"

PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", ETCD, "etcd", "go.etcd.io/etcd/server/v3", 65, fits="major"),
        _containerd("containerd", 75),
        _containerd("containerd-shim-runc-v2", 5),
        _containerd("ctr", 8),
        _kubernetes("kubelet", 37),
        _kubernetes("kube-proxy", 16),
        _kubernetes("kube-scheduler", 14),
        _kubernetes("kube-controller-manager", 141),
        _kubernetes("kube-apiserver", 414),
        _kubernetes("kubectl", 60, ("version", "--client")),
        Program("coredns", COREDNS, "coredns", ".", 60, version_command=("-version",)),
        Program(
            "pulumi", PULUMI, "pulumi", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", 305, _PULUMI_FLAGS, fits="major",
            version_command=("version",), copied_from="github.com/pulumi/pulumi/sdk/v3",
        ),
        Program(
            "pulumi-resource-kubernetes", PROVIDER, "pulumi-resource-kubernetes", ".", 650, _PROVIDER_FLAGS,
            # A plugin has no --version: one from PATH can not be judged, so it is not taken.
            version_command=(), copied_from=_PROVIDER_MODULE,
            copied=(
                "cmd/pulumi-resource-kubernetes/schema.json",
                "cmd/pulumi-resource-kubernetes/terraform-mapping.json",
            ),
        ),
        # The language host of YAML programs, which the policy pack's tests run. It is not on PATH anywhere: pulumi bundles it.
        Program(
            "pulumi-language-yaml", PULUMI_YAML, "pulumi-language-yaml", "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
            150, (f"-X github.com/pulumi/pulumi-yaml/pkg/version.Version={PULUMI_YAML}",), version_command=(),
        ),
        # Runs in an image of its own, never on this machine, so one from PATH is of no use.
        Program(
            "jobset", JOBSET, "jobset", "sigs.k8s.io/jobset", 145, version_command=(), copied_from="sigs.k8s.io/jobset",
            kept=("charts/jobset",),
        ),
    )
}  # fmt: skip
