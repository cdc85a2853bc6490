"""The authority of a job: what it signs, and what it refuses to be."""

import asyncio
import datetime
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID
from elasticdl.errors import PlatformError, RefusedError
from elasticdl.job import names
from elasticdl.job.context import RoleContext
from elasticdl.job.names import Role
from elasticdl.master.calls.enrolling import authority_of
from elasticdl.rpc.tls.certificates import (
    Authority,
    Credentials,
    new_key,
    request_for,
    seeded_key,
)
from elasticdl.rpc.tls.peer_name import PeerName

WORKER = PeerName("ml", "digits", Role.WORKER, 3, 17)
PS = PeerName("ml", "digits", Role.PS, 0, 4)


def write(folder, certificate: x509.Certificate, key) -> None:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "tls.key").write_bytes(pem)
    (folder / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))


def made(
    key,
    *,
    ca: bool | None = True,
    begins=-1.0,
    ends=24.0,
    signs: bool | None = None,
    only: str = "",
    subject: str = "CN=any",
    above: ec.EllipticCurvePrivateKey | None = None,
    more: x509.ExtensionType | None = None,
) -> x509.Certificate:
    """A certificate; `above`: the key of the authority that it is of, not its own."""
    name = x509.Name.from_rfc4514_string(subject)
    issuer = x509.Name.from_rfc4514_string("CN=above") if above else name
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + datetime.timedelta(hours=begins))
        .not_valid_after(now + datetime.timedelta(hours=ends))
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
    if signs is not None:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=signs,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    if only:
        names = x509.NameConstraints([x509.DNSName(only)], None)
        builder = builder.add_extension(names, critical=True)
    if more:
        builder = builder.add_extension(more, critical=False)
    return builder.sign(above or key, hashes.SHA256())


def uses(pem: bytes) -> set:
    found = x509.load_pem_x509_certificate(pem).extensions
    return set(found.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_an_authority_is_read_as_it_was_written(tmp_path):
    authority = Authority.new()
    authority.write(tmp_path)
    read = Authority.load(tmp_path)
    assert read.pem == authority.pem
    assert read.renews(authority)
    assert not read.renews(Authority.new())


@pytest.mark.parametrize(
    ("key", "certificate", "why"),
    [
        (new_key(), {"ca": False}, "no certificate of an authority"),
        (new_key(), {"ca": None}, "no certificate of an authority"),
        (new_key(), {"ends": -0.5}, "tls.crt ended on 20"),
        (new_key(), {"begins": 3.0}, "the clock of who made it is ahead"),
        (rsa.generate_private_key(65537, 2048), {}, "expected one of P-256"),
        (ec.generate_private_key(ec.SECP256K1()), {}, "got a key of secp256k1"),
        (new_key(), {"signs": False}, "no certificate of an authority"),
        (new_key(), {"only": "example.org"}, "that may sign any name"),
        (new_key(), {"subject": ""}, "has no subject"),
    ],
)
def test_an_unusable_authority_is_refused_with_its_reason(
    tmp_path, key, certificate, why
):
    write(tmp_path, made(key, **certificate), key)
    with pytest.raises(PlatformError, match=why) as caught:
        Authority.load(tmp_path)
    assert "tls.existingSecret" in str(caught.value)


def master_of(authority_dir):
    """The context of a master in a pod, as the chart gives it."""
    environ = {
        names.ENV_AUTHORITY_DIR: str(authority_dir),
        names.ENV_CONFIG_MAP: "elasticdl-digits",
        names.ENV_JOB_DIR: "/data/.elasticdl/jobs/ml/digits",
        names.ENV_MASTER_ADDRESS: "elasticdl-digits-master.ml.svc:50001",
        names.ENV_NAMESPACE: "ml",
        names.ENV_PLATFORM: names.PLATFORM_KUBERNETES,
        names.ENV_TOKEN: "token",
    }
    return RoleContext.from_environ(environ, Role.MASTER)


def test_a_master_waits_for_an_authority_that_a_clock_ahead_has_made(tmp_path):
    key = new_key()
    write(tmp_path, made(key, begins=10 / 60), key)
    waited = []

    async def sleep(seconds):
        waited.append(seconds)
        write(tmp_path, made(key), key)  # as if that time were over

    authority = asyncio.run(authority_of(master_of(tmp_path), sleep=sleep))
    assert authority is not None
    assert len(waited) == 1


def test_a_master_does_not_wait_for_hours(tmp_path):
    key = new_key()
    write(tmp_path, made(key, begins=3.0), key)
    with pytest.raises(PlatformError, match="the clock of who made it is ahead"):
        asyncio.run(authority_of(master_of(tmp_path)))


def test_key_and_certificate_have_to_be_of_each_other(tmp_path):
    write(tmp_path, made(new_key()), new_key())
    with pytest.raises(PlatformError, match=r"tls\.key is not the key"):
        Authority.load(tmp_path)


def test_a_certificate_whose_extensions_cannot_be_read_is_refused(tmp_path):
    """At a renewal anything else would end the thread that renews."""
    key = new_key()
    broken = x509.UnrecognizedExtension(x509.BasicConstraints.oid, b"no DER")
    write(tmp_path, made(key, ca=None, more=broken), key)
    with pytest.raises(PlatformError, match="this job's authority cannot be used"):
        Authority.load(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN nothing", b"\xff\x00"])
def test_missing_and_broken_files_are_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "tls.crt").write_bytes(content)
        (tmp_path / "tls.key").write_bytes(content)
    with pytest.raises(PlatformError, match="this job's authority cannot be used"):
        Authority.load(tmp_path)


def test_each_replica_may_serve_but_not_with_its_enrolment():
    authority = Authority.new()
    server, client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    request = request_for(new_key())
    assert uses(authority.sign(PS, request, hours=1)[0]) == {server, client}
    assert uses(authority.sign(WORKER, request, hours=1)[0]) == {server, client}
    master = authority.own(PeerName("ml", "digits", Role.MASTER, 0, 0), hours=1)
    assert uses(master.certificate) == {server, client}
    _, enrolment = authority.enrolment(PS, "token")
    assert uses(enrolment.encode()) == {client}


def test_an_enrolment_is_of_the_key_that_token_and_seed_make():
    authority = Authority.new()
    seed, pem = authority.enrolment(WORKER, "token")
    certificate = x509.load_pem_x509_certificate(pem.encode())
    assert certificate.public_key() == seeded_key("token", seed).public_key()
    again, _ = authority.enrolment(WORKER, "token")
    assert again != seed
    read = Credentials.of(seeded_key("token", seed), pem.encode(), authority.pem)
    assert read.name == PeerName("ml", "digits", Role.WORKER, 3, 17, enrolling=True)


def test_no_certificate_outlives_the_authority():
    authority = Authority.new(days=1)
    long = authority.own(PS, hours=1000)
    assert (
        long.not_after
        == x509.load_pem_x509_certificate(authority.pem).not_valid_after_utc
    )
    assert long.renew_at() < long.not_after


def test_an_authority_that_has_ended_signs_nothing_and_says_why(tmp_path):
    authority = Authority.new(days=0.5 / 86400)
    request = request_for(new_key())
    while authority.days_left() > 0:
        threading.Event().wait(0.05)
    for sign in (
        lambda: authority.sign(WORKER, request, hours=1),
        lambda: authority.own(PS, hours=1),
        lambda: authority.enrolment(PS, "token"),
    ):
        with pytest.raises(PlatformError, match="renew its Secret with the same key"):
            sign()


@pytest.mark.parametrize("request_", [b"", b"none", request_for(new_key())[:-40]])
def test_a_broken_request_is_refused(request_):
    with pytest.raises(RefusedError, match="request of worker-3 of job ml/digits"):
        Authority.new().sign(WORKER, request_, hours=1)


def test_a_request_whose_signature_is_not_of_its_key_is_refused():
    pem = x509.load_pem_x509_csr(request_for(new_key()))
    der = bytearray(pem.public_bytes(Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(RefusedError):
        Authority.new().sign(WORKER, forged, hours=1)


def test_a_certificate_without_a_name_of_ours_is_refused():
    key = new_key()
    pem = made(key).public_bytes(Encoding.PEM)
    with pytest.raises(PlatformError, match="names nobody, expected elasticdl://"):
        Credentials.of(key, pem, pem)


@pytest.mark.parametrize(
    "uri",
    [
        "https://ml/digits/worker/3/17",
        "elasticdl://ml/digits/worker/3",
        "elasticdl://ml/digits/worker/3/17/9",
        "elasticdl://ml/digits/king/3/17",
        "elasticdl://ml/digits/worker/-3/17",
        "elasticdl://ml/digits/worker/\u00b2/17",
        "elasticdl://ml/digits/worker//17",
        "",
    ],
)
def test_other_uris_name_nobody(uri):
    assert PeerName.parse(uri) is None


def test_names_are_read_as_they_are_written():
    for name in (WORKER, PS, PeerName("a", "b", Role.MASTER, 0, 0, enrolling=True)):
        assert PeerName.parse(name.uri) == name
    assert PS.host == WORKER.host_of(Role.PS, 0) == "ps-0.digits.ml.elasticdl"


def test_the_key_of_a_seed_is_one_of_the_curve():
    assert isinstance(seeded_key("t", "s").curve, ec.SECP256R1)
