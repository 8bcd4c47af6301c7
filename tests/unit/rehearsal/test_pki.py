"""Certificates and kubeconfigs of the rehearsal."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from rehearsal import pki


@pytest.fixture
def authority(tmp_path):
    return pki.Authority(tmp_path)


def load(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_is_signed_by_its_authority_and_carries_name_and_group(authority):
    pair = authority.issue("kubelet", "system:node:gpu-0", organisation="system:nodes")
    found = load(pair.certificate)
    found.verify_directly_issued_by(load(authority.pair.certificate))
    assert found.subject.rfc4514_string() == "CN=system:node:gpu-0,O=system:nodes"


def test_only_a_certificate_with_server_names_may_serve(authority):
    client = load(authority.issue("client", "client").certificate)
    server = load(authority.issue("server", "server", server_names=["10.0.0.1", "kubernetes.default"]).certificate)
    usage = x509.ExtendedKeyUsage
    assert x509.ExtendedKeyUsageOID.SERVER_AUTH not in client.extensions.get_extension_for_class(usage).value
    assert x509.ExtendedKeyUsageOID.SERVER_AUTH in server.extensions.get_extension_for_class(usage).value
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes.default"]


def test_a_second_start_finds_the_same_files_again(tmp_path):
    first = pki.Authority(tmp_path).issue("a", "a").certificate.read_bytes()
    assert pki.Authority(tmp_path).issue("a", "a").certificate.read_bytes() == first


def test_a_crash_between_key_and_certificate_is_repaired_by_the_next_start(tmp_path):
    authority = pki.Authority(tmp_path)
    pair = authority.issue("a", "a")
    pair.certificate.unlink()  # as after a crash: the certificate is written last
    again = authority.issue("a", "a")
    key = pki.serialization.load_pem_private_key(again.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert load(again.certificate).public_key() == key.public_key()


def test_keys_and_kubeconfigs_are_readable_by_their_owner_only(tmp_path):
    authority = pki.Authority(tmp_path)
    pair = authority.issue("admin", "admin")
    signer = pki.signing_key(tmp_path)
    config = pki.write_kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443", authority, pair, "admin")
    for path in (authority.pair.key, pair.key, signer.key, config):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_kubeconfig_names_its_context_and_keeps_its_content(tmp_path):
    authority = pki.Authority(tmp_path)
    pair = authority.issue("admin", "admin")
    config = pki.write_kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443", authority, pair, "admin")
    before = config.stat().st_mtime_ns
    pki.write_kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443", authority, pair, "admin")
    assert config.stat().st_mtime_ns == before
    content = yaml.safe_load(config.read_text())
    assert content["current-context"] == pki.CONTEXT == content["contexts"][0]["name"]


def test_an_identity_that_several_nodes_ask_for_at_once_is_one_pair_that_fits(tmp_path):
    for round_number in range(5):
        authority = pki.Authority(tmp_path / str(round_number))
        with ThreadPoolExecutor(6) as pool:
            pairs = list(pool.map(lambda _: authority.issue("kube-proxy", "system:kube-proxy"), range(6)))
        assert len(set(pairs)) == 1
        assert pki._belong_together(pairs[0])


def test_a_key_that_is_not_the_certificate_s_is_replaced(tmp_path):
    authority = pki.Authority(tmp_path)
    pair = authority.issue("a", "a")
    pair.key.write_bytes(authority.issue("b", "b").key.read_bytes())
    assert not pki._belong_together(pair)
    assert pki._belong_together(authority.issue("a", "a"))
