"""The masked CRC-32C of TFRecord and snappy frames.

Owns the mask; the sum itself is google-crc32c's. Knows no format.
"""

from __future__ import annotations

import google_crc32c


def masked_crc32c(data: bytes) -> int:
    """Return the masked CRC-32C of `data`, as TFRecord and snappy store it.

    The mask keeps a checksum of data that itself contains checksums from being weak.
    """
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
