"""Certificates of a job: who is who, as signed by the job's own authority.

Owns how they are made, signed and read. Used by `rpc.tls.identity` and
`rpc.enrolment` in every role of a job whose calls are encrypted, and by the master,
which holds the authority. Knows nothing of calls, files of jobs or pods.

Keys are of the curve P-256, whose signatures are small and quick. Names are those of
`rpc.tls.peer_name`.
"""

from __future__ import annotations

import datetime
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from elasticdl.errors import PlatformError, RefusedError
from elasticdl.rpc.tls.peer_name import SCHEME, PeerName

_CURVE = ec.SECP256R1()
# Those that TLS knows.
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
# Clocks of nodes differ.
_BEFORE = datetime.timedelta(hours=1)
_SEED_BYTES = 32


class NotYetError(PlatformError):
    """An authority that begins in a while, by this machine's clock."""

    def __init__(self, message: str, seconds: float) -> None:
        """Take the message, and how long it is until then."""
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True)
class Credentials:
    """A key, its certificate and the trusted authority; all as PEM."""

    name: PeerName
    key: bytes
    certificate: bytes
    authority: bytes
    not_before: datetime.datetime
    not_after: datetime.datetime

    @staticmethod
    def of(
        key: ec.EllipticCurvePrivateKey, certificate: bytes, authority: bytes
    ) -> Credentials:
        """Read a certificate. Raises PlatformError if it is not one of ElasticDL's."""
        try:
            read = x509.load_pem_x509_certificate(certificate)
        except ValueError as error:
            raise PlatformError(
                f"the certificate of this process cannot be read ({error})"
            ) from error
        return Credentials(
            _name_in(read),
            _pem(key),
            certificate,
            authority,
            read.not_valid_before_utc,
            read.not_valid_after_utc,
        )

    def renew_at(self) -> datetime.datetime:
        """When half of the certificate's life is over; the rest covers outages."""
        return self.not_after - datetime.timedelta(seconds=self.life_seconds() / 2)

    def life_seconds(self) -> float:
        """Seconds for which the certificate is valid from its signature."""
        return (self.not_after - (self.not_before + _BEFORE)).total_seconds()

    def ended(self) -> bool:
        """Whether the certificate has expired, by this machine's clock."""
        return _now() >= self.not_after


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    return ec.generate_private_key(_CURVE)


def seeded_key(token: str, seed: str) -> ec.EllipticCurvePrivateKey:
    """Return the key derived from the job's token and a replica's seed.

    A pod's specification may be read by many who may read no Secret: it has the seed,
    which is worth nothing without the token (a Secret), and so holds no key. Another
    replica has the token, and not the seed. HKDF is RFC 5869.
    """
    wide = HKDF(
        algorithm=hashes.SHA256(),
        # 16 bytes more than the order of the curve has: no number is likelier.
        length=48,
        salt=seed.encode(),
        info=b"elasticdl enrolment key",
    ).derive(token.encode())
    return ec.derive_private_key(
        int.from_bytes(wide, "big") % (_ORDER_OF_P256 - 1) + 1, _CURVE
    )


# SEC 2, section 2.4.2.
_ORDER_OF_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def request_for(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a signing request (PKCS 10, PEM) for the key.

    It has no name: the authority takes that from who sends it.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


class Authority:
    """The job's own certificate authority. Only the master has it."""

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        """Take an authority's certificate and key; use `load` or `new`."""
        self._certificate = certificate
        self._key = key
        self.pem = certificate.public_bytes(Encoding.PEM)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `tls.crt` and `tls.key`, as in a Secret of type kubernetes.io/tls.

        Raises PlatformError if they are missing, no authority's, or not of each other.
        """
        try:
            certificate = x509.load_pem_x509_certificate(
                (folder / "tls.crt").read_bytes()
            )
            key = load_pem_private_key((folder / "tls.key").read_bytes(), None)
            public, signs = certificate.public_key(), _signs(certificate)
        except (
            OSError,
            ValueError,
            TypeError,
            UnsupportedAlgorithm,
            x509.DuplicateExtension,
        ) as error:
            raise _unusable(folder, str(error)) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(
            key.curve, _CURVES
        ):
            curve = getattr(getattr(key, "curve", None), "name", type(key).__name__)
            raise _unusable(
                folder,
                f"got a key of {curve}, expected one of P-256, P-384 or P-521 "
                "(cert-manager: privateKey.algorithm ECDSA)",
            )
        if key.public_key() != public:
            raise _unusable(folder, "tls.key is not the key of tls.crt")
        if not signs:
            raise _unusable(
                folder,
                "tls.crt is no certificate of an authority that may sign any name "
                "(cert-manager: isCA: true, usages with `cert sign`)",
            )
        if not certificate.subject.rfc4514_string():
            raise _unusable(folder, "tls.crt has no subject, by which it is found")
        now = _now()
        if now > certificate.not_valid_after_utc:
            raise _unusable(
                folder, f"tls.crt ended on {certificate.not_valid_after_utc:%Y-%m-%d}"
            )
        early = (certificate.not_valid_before_utc - now).total_seconds()
        if early > 0:
            why = (
                f"tls.crt begins at {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} "
                f"UTC, and it is {now:%H:%M} here: the clock of who made it is ahead"
            )
            raise NotYetError(str(_unusable(folder, why)), early)
        return cls(certificate, key)

    @classmethod
    def new(cls, *, days: float = 3650.0) -> Self:
        """Create a new authority."""
        key = new_key()
        name = x509.Name.from_rfc4514_string("CN=elasticdl")
        now = _now()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    def renews(self, other: Authority) -> bool:
        """Whether peers of the other one believe what this one signs: by key and name.

        An issuer is looked for by its name.
        """
        one, another = self._certificate, other._certificate
        return (
            self._key.public_key() == other._key.public_key()
            and one.subject.public_bytes() == another.subject.public_bytes()
        )

    def write(self, folder: Path) -> None:
        """Write `tls.crt` and `tls.key`, as `load` reads them."""
        (folder / "tls.crt").write_bytes(self.pem)
        (folder / "tls.key").write_bytes(_pem(self._key))

    def sign(
        self, name: PeerName, request: bytes, *, hours: float
    ) -> tuple[bytes, bytes]:
        """Return two certificates (PEM) of a replica for the key in its request.

        One to call with, and one to ask for the next ones, should the first have ended.
        Raises RefusedError if the request cannot be read, or its sender does not have
        the key; PlatformError if this authority has ended.
        """
        try:
            read = x509.load_pem_x509_csr(request)
            valid, key = read.is_signature_valid, read.public_key()
        except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
            raise RefusedError(f"the request of {name} cannot be read: {error}") from (
                error
            )
        if not valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise RefusedError(
                f"the request of {name} is not signed by a key of an elliptic curve"
            )
        lifetime = datetime.timedelta(hours=hours)
        return self._signed(name, key, lifetime), self._for_enrolling(name, key)

    def days_left(self) -> float:
        """Days for which the authority may still sign; negative after its end."""
        return (self._certificate.not_valid_after_utc - _now()) / datetime.timedelta(1)

    def own(self, name: PeerName, *, hours: float) -> Credentials:
        """Return new credentials of the process that has this authority."""
        key = new_key()
        lifetime = datetime.timedelta(hours=hours)
        return Credentials.of(
            key, self._signed(name, key.public_key(), lifetime), self.pem
        )

    def enrolment(self, name: PeerName, token: str) -> tuple[str, str]:
        """Return seed and certificate (PEM) with which a new replica requests its own.

        It may wait for its node for weeks: its certificate ends with the authority.
        """
        seed = secrets.token_hex(_SEED_BYTES)
        key = seeded_key(token, seed).public_key()
        return seed, self._for_enrolling(name, key).decode()

    def _for_enrolling(self, name: PeerName, key: ec.EllipticCurvePublicKey) -> bytes:
        lifetime = self._certificate.not_valid_after_utc - _now()
        return self._signed(replace(name, enrolling=True), key, lifetime)

    def _signed(
        self,
        name: PeerName,
        key: ec.EllipticCurvePublicKey,
        lifetime: datetime.timedelta,
    ) -> bytes:
        now = _now()
        if now >= self._certificate.not_valid_after_utc:
            raise PlatformError(
                "the job's authority ended on "
                f"{self._certificate.not_valid_after_utc:%Y-%m-%d}: no replica gets a "
                "certificate any more; renew its Secret with the same key, or begin "
                "the job anew (`run`)"
            )
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name.uri)]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if not name.enrolling:
            # A worker serves metrics alone: nobody calls it as a master or a PS.
            names += [x509.DNSName(name.host), x509.DNSName(name.metrics_host)]
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        end = min(now + lifetime, self._certificate.not_valid_after_utc)
        built = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(end)
            # Critical, as RFC 5280 asks where there is no subject.
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return built.public_bytes(Encoding.PEM)


def _name_in(certificate: x509.Certificate) -> PeerName:
    try:
        found = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        found = []
    for uri in found:
        name = PeerName.parse(uri)
        if name is not None:
            return name
    raise PlatformError(
        f"a certificate names {', '.join(found) or 'nobody'}, expected "
        f"{SCHEME}://NAMESPACE/JOB/ROLE/INDEX/GENERATION"
    )


def _signs(certificate: x509.Certificate) -> bool:
    """Whether a certificate may sign others."""
    found = {type(one.value): one.value for one in certificate.extensions}
    basic, usage = found.get(x509.BasicConstraints), found.get(x509.KeyUsage)
    return (
        isinstance(basic, x509.BasicConstraints)
        and basic.ca
        and (not isinstance(usage, x509.KeyUsage) or usage.key_cert_sign)
        and x509.NameConstraints not in found
    )


def _unusable(folder: Path, why: str) -> PlatformError:
    return PlatformError(
        f"{folder}: this job's authority cannot be used: {why}; it comes from the "
        "Secret elasticdl-<job>-ca, or from tls.existingSecret"
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
