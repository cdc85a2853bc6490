"""A seeded order of n things without an array: a Feistel network with cycle walking.

Owns the order in which tasks of an epoch are given out. Called by `master.tasks.queue`.
Pure.

Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (2002): a balanced
Feistel network over the next even power of two, walked until the value is below n.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1  # Arithmetic of unsigned 64-bit words.
# Four rounds of a Feistel network are a pseudorandom permutation (Luby, Rackoff).
_ROUNDS = 4


def _mix(value: int) -> int:
    # The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a few cheap operations
    # whose output bits all depend on all input bits.
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Permutation:
    """A one-to-one map of range(n) onto itself, chosen by `seed`."""

    def __init__(self, n: int, seed: int) -> None:
        """Prepare the round keys; `n` is at least 1."""
        self._n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._low = (1 << self._half) - 1
        key = _mix(seed & _MASK)
        keys = []
        for _ in range(_ROUNDS):
            key = _mix(key)
            keys.append(key)
        self._keys = tuple(keys)

    def __getitem__(self, index: int) -> int:
        """Return the image of `index`. Raises IndexError outside range(n)."""
        if not 0 <= index < self._n:
            raise IndexError(f"got {index}, expected 0 to {self._n - 1}")
        half, low = self._half, self._low
        value = index
        while True:
            left, right = value >> half, value & low
            for key in self._keys:
                left, right = right, left ^ (_mix(right ^ key) & low)
            value = (left << half) | right
            if value < self._n:
                return value
