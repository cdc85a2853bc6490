"""What a process's metrics server shows where metrics are encrypted too.

Owns who may read them. Used by each role's main. Knows nothing of what is served.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from elasticdl.metrics.server import Secure
from elasticdl.rpc.tls.contexts import CurrentContext, show
from elasticdl.rpc.tls.identity import Identity

if TYPE_CHECKING:
    from elasticdl.rpc.tls.certificates import Credentials


def secure_metrics(identity: Identity | None, token: str) -> Secure | None:
    """Return the protection of metrics; None if they are served in the clear.

    `token`: what a reader has to bring, "" where metrics are in the clear.
    """
    if identity is None or not token:
        return None
    return Secure(CurrentContext(identity, _context), token)


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(context, credentials)
    return context
