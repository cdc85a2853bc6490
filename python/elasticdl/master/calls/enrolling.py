"""A master's authority: who its replicas are, in calls that are encrypted.

Owns the authority that the job's Secret holds, the master's own certificate, what new
pods are given, and the answer to their requests. Made by `master.pod`; served by
`master.serving`. Must not know what replicas do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from elasticdl.errors import ElasticDLError, PlatformError
from elasticdl.job import names
from elasticdl.job.context import RoleContext
from elasticdl.job.names import Role
from elasticdl.job.tasks import ReplicaId
from elasticdl.rpc.errors import status_of
from elasticdl.rpc.master_service import Enrolled
from elasticdl.rpc.tls.certificates import Authority, Credentials, NotYetError
from elasticdl.rpc.tls.identity import Identity
from elasticdl.rpc.tls.peer_name import PeerName
from elasticdl.rpc.tls.peers import caller_of
from elasticdl.runner.base import Launch

log = logging.getLogger(__name__)

_FEW_DAYS = 30.0  # A month is time to renew an authority by hand.
# By which a clock may be ahead; a startup probe gives a master more time than that.
_MOST_AHEAD_SECONDS = 1800.0
_LOOK_SECONDS = 10.0  # This one may be set meanwhile.


class JobAuthority:
    """The authority of one job, in its master. Thread-safe."""

    def __init__(
        self, folder: Path, *, namespace: str, job: str, token: str, hours: float
    ) -> None:
        """Read the authority from `folder`; certificates are good for so many hours.

        Raises PlatformError if it cannot be used.
        """
        self._folder = folder
        self._namespace, self._job = namespace, job
        self._token = token
        self._hours = hours
        self._authority = Authority.load(folder)
        self._say_when_it_ends()
        self.identity = Identity(self._own(), self._renewed)

    @staticmethod
    def of(context: RoleContext) -> JobAuthority | None:
        """Return the authority of a master in a pod; None if calls are in the clear."""
        place = context.cluster
        if place is None or place.authority_dir is None:
            return None
        return JobAuthority(
            place.authority_dir,
            namespace=place.namespace,
            job=place.job,
            token=context.token,
            hours=place.certificate_hours,
        )

    def enrolment(self, launch: Launch) -> Mapping[str, str]:
        """Return the variables with which a replica requests its certificate."""
        name = self._name(launch.key.role, launch.key.index, launch.generation)
        seed, certificate = self._authority.enrolment(name, self._token)
        return {
            # Not that of the Secret, which may have changed since this master began.
            names.ENV_AUTHORITY: self._authority.pem.decode(),
            names.ENV_ENROLMENT: certificate,
            names.ENV_ENROLMENT_SEED: seed,
        }

    def sign(self, caller: PeerName, request: bytes) -> Enrolled:
        """Return a certificate for the caller. Raises RefusedError."""
        name = self._name(caller.role, caller.index, caller.generation)
        authority = self._authority
        certificate, enrolment = authority.sign(name, request, hours=self._hours)
        return Enrolled(certificate, authority.pem, enrolment)

    def _own(self) -> Credentials:
        return self._authority.own(self._name(Role.MASTER, 0, 0), hours=self._hours)

    def _renewed(self) -> Credentials:
        """Return the master's next credentials; the authority may be a renewed one."""
        try:
            found = Authority.load(self._folder)
        except PlatformError as error:
            log.warning("%s; going on with the one of this master's start", error)
        else:
            if found.renews(self._authority):
                self._authority = found
            elif found.pem != self._authority.pem:
                log.error(
                    "%s: the job's authority has another key or name now; the one "
                    "before stays in force until the master starts again, and "
                    "replaces all PS and workers: they do not believe the new one. "
                    "With cert-manager set privateKey.rotationPolicy: Never",
                    self._folder,
                )
        self._say_when_it_ends()
        return self._own()

    def _say_when_it_ends(self) -> None:
        left = self._authority.days_left()
        if left < _FEW_DAYS:
            log.warning(
                "%s: the job's authority ends in %.1f days, and no replica gets a "
                "certificate afterwards; renew its Secret with the same key and "
                "subject",
                self._folder,
                left,
            )

    def _name(self, role: Role, index: int, generation: int) -> PeerName:
        return PeerName(self._namespace, self._job, role, index, generation)


async def authority_of(
    context: RoleContext, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> JobAuthority | None:
    """Return the job's authority; wait for one that was made by a clock ahead.

    Helm makes it good from that moment on, by the clock of who submits the job.
    Raises PlatformError.
    """
    while True:
        try:
            return JobAuthority.of(context)
        except NotYetError as error:
            if error.seconds > _MOST_AHEAD_SECONDS:
                raise
            log.warning("%s; waiting for %.0f s", error, error.seconds)
            await sleep(min(error.seconds, _LOOK_SECONDS))


class Enrolling:
    """The service that signs the certificates of replicas."""

    def __init__(
        self, authority: JobAuthority, require: Callable[[ReplicaId], object]
    ) -> None:
        """`require` raises FencedError for a replica that is not the job's."""
        self._authority = authority
        self._require = require

    async def Enrol(  # noqa: N802 - the name is the RPC's
        self,
        request: bytes,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> Enrolled:
        """Sign the caller's key if the caller is a current replica."""
        caller = caller_of(context)
        if caller is None:
            raise AssertionError("served on encrypted connections alone")
        try:
            self._require(
                ReplicaId(
                    role=caller.role, index=caller.index, generation=caller.generation
                )
            )
            return self._authority.sign(caller, request)
        except ElasticDLError as error:
            await context.abort(status_of(error), str(error))
        raise AssertionError("abort raises")
