"""TLS contexts of Python's `ssl`, of the credentials in force.

Owns the form that `ssl` wants of them. Used by `rpc.tls.https` and `rpc.tls.links`.
Knows nothing of what is sent.
"""

from __future__ import annotations

import ssl
import tempfile
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from elasticdl.rpc.tls.identity import Identity

if TYPE_CHECKING:  # on one machine nobody needs its libraries
    from elasticdl.rpc.tls.certificates import Credentials


class CurrentContext:
    """A context that is made anew when the identity is renewed. Thread-safe."""

    def __init__(
        self, identity: Identity, make: Callable[[Credentials], ssl.SSLContext]
    ) -> None:
        """Take an identity, and what makes a context of its credentials."""
        self._identity = identity
        self._make = make
        self._lock = threading.Lock()
        self._shown = identity.credentials
        self._made = make(self._shown)

    def __call__(self) -> ssl.SSLContext:
        """Return the context of the current certificate."""
        with self._lock:
            newest = self._identity.credentials
            if newest is not self._shown:
                self._shown, self._made = newest, self._make(newest)
            return self._made


def show(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Have a context show these credentials to the other end."""
    # `ssl` reads files alone: one without a name, that nobody else can open.
    with tempfile.TemporaryFile() as file:
        file.write(credentials.certificate + credentials.key)
        file.flush()
        context.load_cert_chain(f"/dev/fd/{file.fileno()}")
