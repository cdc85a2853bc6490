"""Who a process is, as its certificate says.

Owns the two forms of a name. Used by `rpc.tls.certificates`, which writes it, and
`rpc.tls.peers`, which reads it. Knows nothing of keys.

A name is a URI, `elasticdl://NAMESPACE/JOB/ROLE/INDEX/GENERATION`, and a host name that
clients ask of a server in place of its address, which changes:
`ROLE-INDEX.JOB.NAMESPACE.elasticdl`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from elasticdl.job.names import Role

SCHEME = "elasticdl"
# A certificate of this scheme lets a replica ask for its own one, and do nothing else.
_ENROLLING = "elasticdl-enrolment"


@dataclass(frozen=True)
class PeerName:
    """The name of a process in its certificate."""

    namespace: str
    job: str
    role: Role
    index: int
    generation: int
    enrolling: bool = False  # it has no certificate of its own yet

    def __str__(self) -> str:
        what = " (not enrolled yet)" if self.enrolling else ""
        return (
            f"{self.role}-{self.index} of job {self.namespace}/{self.job}, "
            f"generation {self.generation}{what}"
        )

    @property
    def uri(self) -> str:
        """The name in full."""
        scheme = _ENROLLING if self.enrolling else SCHEME
        return (
            f"{scheme}://{self.namespace}/{self.job}/{self.role}/{self.index}"
            f"/{self.generation}"
        )

    @property
    def host(self) -> str:
        """The host name that clients expect of this server."""
        return self.host_of(self.role, self.index)

    @property
    def metrics_host(self) -> str:
        """The host name that readers of metrics expect of each replica of the job."""
        return f"metrics.{self.job}.{self.namespace}.{SCHEME}"

    def host_of(self, role: Role, index: int) -> str:
        """Return the host name of another replica of the same job."""
        return f"{role}-{index}.{self.job}.{self.namespace}.{SCHEME}"

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def parse(uri: str) -> PeerName | None:
        """Return the name in a URI; None if it is not one."""
        scheme, _, rest = uri.partition("://")
        parts = rest.split("/")
        if scheme not in (SCHEME, _ENROLLING) or len(parts) != 5:
            return None
        namespace, job, role, index, generation = parts
        numbers = index + generation
        if role not in list(Role) or not (index and generation):
            return None
        if not (numbers.isascii() and numbers.isdecimal()):
            return None
        return PeerName(
            namespace,
            job,
            Role(role),
            int(index),
            int(generation),
            enrolling=scheme == _ENROLLING,
        )
