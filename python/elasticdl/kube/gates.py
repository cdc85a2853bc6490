"""Pods that somebody has to let go before the scheduler looks at them.

Owns how scheduling gates are said. Called by whoever tells why a pod waits. Pure.
"""

from __future__ import annotations

from typing import Any

_QUEUE = "kueue.x-k8s.io/queue-name"


def gated(pod: dict[str, Any]) -> str:
    """Return behind which gates a pod waits, with its queue if it has one; or ""."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or []
    names = ", ".join(str(gate.get("name", "")) for gate in gates)
    if not names:
        return ""
    queue = (pod["metadata"].get("labels") or {}).get(_QUEUE, "")
    return f"not admitted yet: {names}{f', queue {queue}' if queue else ''}"
