"""What an API server refused or did not answer, and how long to wait then.

Owns the judgement whether trying again may help. Raised by `kube.api`.
"""

from __future__ import annotations

import contextlib
import json
import random
import ssl
from collections.abc import Mapping
from typing import Any

import urllib3

from elasticdl.errors import PlatformError
from elasticdl.pauses import growing

Json = dict[str, Any]

# The first retry is quick: most refusals are over in a moment.
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0  # A server that is back is noticed within 10 seconds.


class ApiError(PlatformError):
    """The API server refused a call, or gave no answer (`status` 0)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_seconds: float = 0.0,
        final: bool = False,
    ) -> None:
        """`reason` is the server's word for it, as `AlreadyExists`."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self._final = final

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed a little later."""
        # Quota is counted by compare-and-set: many pods at once meet a conflict.
        conflict = self.status == 409 and self.reason == "Conflict"
        away = self.status in (0, 408, 429) or self.status >= 500
        return not self._final and (away or conflict)


class Backoff:
    """Growing pauses with jitter, so that many masters do not call in step."""

    def __init__(self, longest_seconds: float = _LONGEST_PAUSE_SECONDS) -> None:
        """Begin with a short pause."""
        self._longest = longest_seconds
        self._tries = 0

    @property
    def tries(self) -> int:
        """Return how often a pause was asked for since the last success."""
        return self._tries

    def next_seconds(self, least: float = 0.0) -> float:
        """Return the next pause in seconds; at least what the server asked for."""
        share = random.random()
        most = self._longest
        pause = growing(self._tries, first=_FIRST_PAUSE_SECONDS, most=most, share=share)
        self._tries += 1
        return least + pause

    def reset(self) -> None:
        """Begin with short pauses again, after a success."""
        self._tries = 0


def refusal(
    method: str, path: str, status: int, headers: Mapping[str, str], data: bytes
) -> ApiError:
    """Return the server's refusal in its own words."""
    said: Json = {}
    with contextlib.suppress(ValueError, RecursionError):
        parsed = json.loads(data)
        said = parsed if isinstance(parsed, dict) else {}
    details = said.get("details")
    if not isinstance(details, dict):  # a proxy's own document
        details = {}
    wait = headers.get("Retry-After", "") or str(details.get("retryAfterSeconds", ""))
    return ApiError(
        said.get("message") or f"{method} {path}: HTTP status {status}",
        status=status,
        reason=said.get("reason") or "",
        retry_after_seconds=float(wait) if wait.isdigit() else 0.0,
    )


def unanswered(error: urllib3.exceptions.HTTPError) -> ApiError:
    cause = error.args[0] if error.args else None
    distrusted = isinstance(cause, ssl.SSLCertVerificationError)
    return ApiError(f"the API server gives no answer: {error}", final=distrusted)
