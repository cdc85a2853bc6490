"""What a process's metrics server shows where metrics are encrypted too.

Owns the form that Python's `ssl` wants of the identity in force. Used by each role's
main. Knows nothing of what is served.
"""

from __future__ import annotations

import ssl
import tempfile
import threading
from collections.abc import Callable

from elasticdl.metrics.server import Secure
from elasticdl.rpc.tls.identity import Identity


def secure_metrics(identity: Identity | None, token: str) -> Secure | None:
    """Return the protection of metrics; None if they are served in the clear.

    `token`: what a reader has to bring, "" where metrics are in the clear.
    """
    if identity is None or not token:
        return None
    return Secure(_contexts(identity), token)


def _contexts(identity: Identity) -> Callable[[], ssl.SSLContext]:
    """Return a function that returns the TLS context of the current certificate."""
    lock = threading.Lock()
    shown = identity.credentials
    made = _context(shown.certificate + shown.key)

    def current() -> ssl.SSLContext:
        nonlocal shown, made
        with lock:
            if identity.credentials is not shown:
                shown = identity.credentials
                made = _context(shown.certificate + shown.key)
            return made

    return current


def _context(chain_and_key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # `ssl` reads files alone: one without a name, that nobody else can open.
    with tempfile.TemporaryFile() as file:
        file.write(chain_and_key)
        file.flush()
        context.load_cert_chain(f"/dev/fd/{file.fileno()}")
    return context
