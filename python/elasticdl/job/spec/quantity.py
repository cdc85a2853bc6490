"""Memory quantities of Kubernetes (`512Mi`, `4G`) as bytes, and back. Pure."""

from __future__ import annotations

import math

_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "m": 1e-3,
}  # fmt: skip


def parse_bytes(quantity: str) -> int:
    """Return the bytes of a checked quantity; 0 for "".

    Raises ValueError for one whose digits are too many for any amount.
    """
    if not quantity:
        return 0
    number = quantity.rstrip("kKMGTPim")
    size = float(number) * _UNITS[quantity[len(number) :]]
    if size == math.inf:
        raise ValueError(f"a quantity of {len(number)} digits")
    return int(size)


def format_bytes(size: int) -> str:
    """Return a quantity in Mi, rounded up."""
    return f"{-(-size // 2**20)}Mi"


def bytes_or_zero(quantity: object) -> int:
    """Return the bytes of an unchecked quantity; 0 if it is invalid."""
    try:
        return parse_bytes(str(quantity or ""))
    except (ValueError, KeyError):
        return 0


def is_whole(quantity: str) -> bool:
    """Whether a quantity is a whole number; also of one that is invalid."""
    unit = quantity.lstrip("0123456789.")
    try:
        return (float(quantity.removesuffix(unit)) * _UNITS[unit]).is_integer()
    except (ValueError, KeyError):
        return True
