"""What a process shows to its peers where calls are encrypted, and whom it believes.

Owns the credentials in force, their renewal while the process runs, and what gRPC makes
of them. Made once by `master.pod` (from its authority) or `rpc.enrolment` (of a PS
or worker); used by `rpc.channel` and `rpc.server`. Must not know how credentials are
got.

Connections that stand are not closed when a certificate ends: a new one is asked for
when half of the old one's life is over, and is shown from then on.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from elasticdl.errors import ElasticDLError
from elasticdl.pauses import growing

if TYPE_CHECKING:
    from elasticdl.job.context import RoleContext
    from elasticdl.rpc.tls.certificates import Credentials
    from elasticdl.rpc.tls.peer_name import PeerName

log = logging.getLogger(__name__)

# The wall clock is asked so often: it may be set, and a machine may sleep.
_LOOK_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 1.0
_PARTS_OF_LIFE = 10  # at most so many renewals in the life of one certificate
_LONGEST_PAUSE_SECONDS = 60.0


class Identity:
    """The credentials of this process, renewed by a thread. Thread-safe."""

    def __init__(
        self,
        credentials: Credentials,
        renew: Callable[[], Credentials],
        *,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(
            datetime.UTC
        ),
    ) -> None:
        """Take the first credentials and a function for the next ones.

        `renew` may raise ElasticDLError; it is tried again.
        """
        self._credentials = credentials
        self._renew = renew
        self._now = now
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> PeerName:
        """The name of this process."""
        return self._credentials.name

    @property
    def credentials(self) -> Credentials:
        """The current credentials."""
        return self._credentials

    def keep_young(self) -> None:
        """Renew in time until `close`."""
        self._thread = threading.Thread(
            target=self._keep, name="certificates", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop renewing."""
        self._stop.set()

    def renew_if_due(self) -> bool:
        """Renew if due; return False after a failure, which is logged."""
        shown = self._credentials
        # One that begins later was signed while this machine's clock was ahead.
        if shown.not_before <= self._now() < shown.renew_at():
            return True
        try:
            self._credentials = self._renew()
        except ElasticDLError as error:
            log.warning(
                "This process's certificate ends at %s and cannot be renewed yet: %s",
                self._credentials.not_after,
                error,
            )
            return False
        log.info("New certificate until %s", self._credentials.not_after)
        return True

    def _until_due(self) -> float:
        """Return how long to wait; at least a moment even if the clock is wrong."""
        left = (self._credentials.renew_at() - self._now()).total_seconds()
        least = self._credentials.life_seconds() / _PARTS_OF_LIFE
        least = min(max(least, _FIRST_PAUSE_SECONDS), _LOOK_SECONDS)
        return min(max(left, least), _LOOK_SECONDS)

    def _keep(self) -> None:
        failed = 0
        pause = self._until_due()
        while not self._stop.wait(pause):
            if self.renew_if_due():
                failed, pause = 0, self._until_due()
            else:
                pause = growing(
                    failed,
                    first=_FIRST_PAUSE_SECONDS,
                    most=_LONGEST_PAUSE_SECONDS,
                    share=0.0,
                )
                failed += 1


def identity_of(context: RoleContext, leaving: threading.Event) -> Identity | None:
    """Return the identity of a PS or worker, signed by the master.

    None where calls are not encrypted. Raises as `rpc.enrolment.enrolled` does.
    """
    if context.enrolment is None:
        return None
    # Imported late: on one machine nobody needs its libraries.
    from elasticdl.rpc.enrolment import enrolled

    return enrolled(context, context.enrolment, leaving)


def channel_credentials(of: Credentials) -> grpc.ChannelCredentials:
    """Return a client's credentials, and the authority that it trusts."""
    return grpc.ssl_channel_credentials(of.authority, of.key, of.certificate)


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Return a server's credentials at each handshake, and the clients it admits."""
    shown = identity.credentials
    changing = threading.Lock()

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        with changing:
            newest = identity.credentials
            if newest is shown:
                # Never the same once more: gRPC takes each answer for a change, and
                # replaces what handshakes of other threads are using just then.
                return None
            shown = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        newer,  # type: ignore[arg-type]  # None is "unchanged", the stubs do not say so
        require_client_authentication=True,
    )


def _configuration(of: Credentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(of.key, of.certificate)], of.authority
    )
