"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, each with its own identity, on the bridge's address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rehearsal import pki, processes
from rehearsal.addresses import Addresses
from rehearsal.errors import RehearsalError
from rehearsal.progress import Step
from rehearsal.state import state_dir
from rehearsal.waiting import wait_until

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROGRAMS = NAMES
API_PORT = 6443


@dataclass(frozen=True)
class Identities:
    """Every certificate and kubeconfig of the control plane. `admin` is for a person, 0600."""

    authority: pki.Authority
    front_proxy: pki.Authority
    folder: Path
    server: str

    @property
    def admin(self) -> Path:
        return state_dir() / "kubeconfig"

    def kubeconfig(self, name: str, common_name: str, organisation: str | None = None) -> Path:
        pair = self.authority.issue(name, common_name, organisation=organisation)
        return pki.write_kubeconfig(self.folder / f"{name}.kubeconfig", self.server, self.authority, pair, name)


def identities(plan: Addresses) -> Identities:
    """Make, or find again, what is needed before any process starts."""
    folder = state_dir() / "pki"
    made = Identities(
        authority=pki.Authority(folder),
        front_proxy=pki.Authority(folder, "front-proxy-ca"),
        folder=folder,
        server=f"https://{plan.machine}:{API_PORT}",
    )
    admin = made.authority.issue("admin", "holdfast-admin", organisation="system:masters")
    pki.write_kubeconfig(made.admin, made.server, made.authority, admin, "admin")
    return made


def start(plan: Addresses, who: Identities, programs: dict[str, Path], step: Step) -> None:
    """Start what does not run yet, in order, and wait until each serves. A process that ends meanwhile is named."""
    _start_etcd(plan, who, programs["etcd"])
    _start_apiserver(plan, who, programs["kube-apiserver"])
    _wait_for_apiserver(step)
    # These two ask at their start for what the API server makes at its own, and end when they may not read it yet.
    for name in ("kube-controller-manager", "kube-scheduler"):
        _start_client(name, plan, who, programs[name])


def _start_client(name: str, plan: Addresses, who: Identities, program: Path) -> None:
    kubeconfig = who.kubeconfig(name, f"system:{name}")
    signer = pki.signing_key(who.folder)
    controllers = [
        "--allocate-node-cidrs=false",
        f"--cluster-cidr={plan.base}",
        f"--root-ca-file={who.authority.pair.certificate}",
        f"--cluster-signing-cert-file={who.authority.pair.certificate}",
        f"--cluster-signing-key-file={who.authority.pair.key}",
        f"--service-account-private-key-file={signer.key}",
        "--use-service-account-credentials=true",
        # Its default is a folder of the machine's, which it would create.
        f"--flex-volume-plugin-dir={state_dir() / 'volume-plugins'}",
    ]
    processes.start(
        name,
        [
            program,
            f"--bind-address={plan.machine}",
            "--leader-elect=false",
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--cert-dir={who.folder / name}",
            *(controllers if name == "kube-controller-manager" else []),
        ],
    )


def _start_etcd(plan: Addresses, who: Identities, program: Path) -> None:
    server = who.authority.issue("etcd", "etcd", server_names=[plan.machine])
    url, peer = f"https://{plan.machine}:2379", f"https://{plan.machine}:2380"
    processes.start(
        "etcd",
        [
            program,
            "--name=rehearsal",
            f"--data-dir={state_dir() / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=rehearsal={peer}",
            "--client-cert-auth",
            "--peer-client-cert-auth",
            *(
                f"--{prefix}{flag}"
                for prefix in ("", "peer-")
                for flag in (
                    f"cert-file={server.certificate}",
                    f"key-file={server.key}",
                    f"trusted-ca-file={who.authority.pair.certificate}",
                )
            ),
            # A rehearsal that a crash of the machine ends is begun anew; waiting for the disk at each write helps nobody.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
    )


def _start_apiserver(plan: Addresses, who: Identities, program: Path) -> None:
    authority = who.authority
    server = authority.issue(
        "kube-apiserver",
        "kube-apiserver",
        server_names=[
            plan.machine,
            plan.kubernetes_service,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ],
    )
    to_etcd = authority.issue("kube-apiserver-etcd-client", "kube-apiserver-etcd-client")
    # The API server reaches the kubelets (logs, exec) as a member of this group, as kubeadm sets it up.
    to_kubelet = authority.issue("kube-apiserver-kubelet-client", "kube-apiserver", organisation="system:masters")
    proxy = who.front_proxy.issue("front-proxy-client", "front-proxy-client")
    signer = pki.signing_key(who.folder)
    processes.start(
        "kube-apiserver",
        [
            program,
            f"--advertise-address={plan.machine}",
            f"--bind-address={plan.machine}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={plan.services}",
            f"--etcd-servers=https://{plan.machine}:2379",
            f"--etcd-cafile={authority.pair.certificate}",
            f"--etcd-certfile={to_etcd.certificate}",
            f"--etcd-keyfile={to_etcd.key}",
            f"--client-ca-file={authority.pair.certificate}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--kubelet-certificate-authority={authority.pair.certificate}",
            f"--kubelet-client-certificate={to_kubelet.certificate}",
            f"--kubelet-client-key={to_kubelet.key}",
            # The machine can not resolve the nodes' names.
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={who.front_proxy.pair.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            # Webhooks are called at their Pods: the machine has a route to those, but none to Services.
            "--enable-aggregator-routing=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-key-file={signer.certificate}",
            f"--service-account-signing-key-file={signer.key}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--allow-privileged=true",
            f"--cert-dir={who.folder / 'kube-apiserver'}",
        ],
    )


def _wait_for_apiserver(step: Step) -> None:
    from rehearsal.api import ready_problem  # the client library takes a second to import

    def missing() -> str:
        for name in ("etcd", "kube-apiserver"):
            if not processes.running(name):
                raise RehearsalError(
                    f"{name} ended while the control plane started. {processes.last_words(name)}",
                    f"Read {processes.log_path(name)}, then run `./holdfast up` again.",
                )
        return ready_problem()

    wait_until(missing, limit_seconds=90, step=step, fix=f"Read {processes.log_path('kube-apiserver')}.")
