"""Certificates and kubeconfigs of the rehearsal: one authority, one identity per component, as in a real cluster."""

from __future__ import annotations

import datetime
import ipaddress
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rehearsal.state import write_atomically

LIFETIME = datetime.timedelta(days=3650)
CONTEXT = "holdfast-rehearsal"


_issuing = threading.Lock()  # nodes are started side by side, and some identities are the same for all


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder. Made once; every later call returns the files that are there."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        if not self.pair.certificate.exists():
            self._make(name)
        self._certificate = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        self._key = serialization.load_pem_private_key(self.pair.key.read_bytes(), None)

    def _make(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"holdfast-rehearsal-{name}")])
        builder = _builder(subject, subject, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        _write_pair(self.pair, builder.sign(key, hashes.SHA256()), key)

    def issue(
        self,
        name: str,
        common_name: str,
        *,
        organisation: str | None = None,
        server_names: Sequence[str] = (),
    ) -> Pair:
        """A pair `name`.crt/.key for one identity. With `server_names` (DNS names or addresses) it may also serve."""
        with _issuing:
            return self._issue(name, common_name, organisation, server_names)

    def _issue(
        self, name: str, common_name: str, organisation: str | None, server_names: Sequence[str]
    ) -> Pair:
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        if _belong_together(pair):
            return pair
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organisation:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if server_names else [])
        builder = _builder(x509.Name(attributes), self._certificate.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if server_names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(n) for n in server_names]), False)
        _write_pair(pair, builder.sign(self._key, hashes.SHA256()), key)
        return pair


def _belong_together(pair: Pair) -> bool:
    """Whether both files are there and the key is the certificate's: a crash between two writes may leave others."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return False
    return certificate.public_key() == key.public_key()


def signing_key(folder: Path) -> Pair:
    """The key pair that signs ServiceAccount tokens: an RSA key and its public half."""
    pair = Pair(folder / "service-accounts.pub", folder / "service-accounts.key")
    if not pair.certificate.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        write_atomically(pair.key, _private_pem(key), mode=0o600)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_atomically(pair.certificate, public.decode())
    return pair


def write_kubeconfig(path: Path, server: str, authority: Authority, identity: Pair, user: str) -> Path:
    """A kubeconfig with one explicit context. Left alone when it would not change, so that its content is stable."""
    text = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": CONTEXT, "cluster": {"server": server, "certificate-authority": str(authority.pair.certificate)}}
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate": str(identity.certificate), "client-key": str(identity.key)},
                }
            ],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
            "current-context": CONTEXT,
        }
    )
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text, mode=0o600)
    return path


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # a clock that is set back a little harms nothing
        .not_valid_after(now + LIFETIME)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _write_pair(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    # The certificate is written last: where it exists, its key does too.
    write_atomically(pair.key, _private_pem(key), mode=0o600)
    write_atomically(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM).decode())
