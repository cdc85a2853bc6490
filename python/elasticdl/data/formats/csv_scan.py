"""Finds where each record of a CSV file begins.

Owns what a record is: which newlines end one, and which quotes count. Called by
`csv_lines`, which keeps the result as the file's index. Must not know columns or names.

A newline between an opening and a closing quote ends no record. A quote opens a field
only where a field begins; inside an unquoted field it is a character, as the csv module
takes it. One damaged byte must not take the rest of the file along, so an opening quote
is taken for a character, and its record ends with its line, where
- its closing quote is on a later line and is followed by neither a delimiter nor the
  end of a line: that is the opening quote of a later field,
- no closing quote comes within LONGEST_RECORD, or before the end of the file.
Reading then finds that one line to be no CSV.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats import index
from elasticdl.errors import DataError

# A longer record is bad, and is never read into memory; quoted text that long is rare.
LONGEST_RECORD = 16 * 1024 * 1024
_BLOCK_BYTES = 16 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13

_Places = NDArray[np.int64]


@dataclass(frozen=True)
class _Quoted:
    """The quoted ranges of a block.

    Attributes:
        opens: Where each begins, ascending.
        closes: Where each ends, as many.
        open_at: Where one begins that does not end in the block; -1 if there is none.
    """

    opens: _Places
    closes: _Places
    open_at: int = -1

    def inside(self, places: _Places) -> NDArray[np.bool_]:
        """Return which places lie in a quoted range that ends in the block."""
        began = np.searchsorted(self.opens, places)
        return began > np.searchsorted(self.closes, places)


class _Block:
    """A block of the file that begins outside quotes."""

    def __init__(
        self, content: bytes, *, before: int, last: bool, quote: int, delimiter: int
    ) -> None:
        """Take the bytes, the byte before them, and whether the file ends here."""
        self._content = content
        self._data = np.frombuffer(content, np.uint8)
        self._before = before
        self._last = last
        self._quote = quote
        self._delimiter = delimiter
        self.newlines: _Places = np.flatnonzero(self._data == _NEWLINE)

    def byte_before(self, places: _Places) -> NDArray[np.uint8]:
        """Return the byte before each place."""
        found = self._data[places - 1]
        if len(places) and places[0] == 0:
            found[0] = self._before
        return found

    def quoted(self) -> _Quoted:
        """Return the quoted ranges."""
        quotes = np.flatnonzero(self._data == self._quote)
        if not len(quotes):
            return _Quoted(quotes, quotes)
        return self._by_parity(quotes) or self._one_by_one(quotes.tolist())

    def _by_parity(self, quotes: _Places) -> _Quoted | None:
        """Pair quotes as opening and closing in turn; None if one does not fit.

        The halves of a doubled quote are a closing and an opening one side by side.
        """
        if (
            not self._last
            and quotes[-1] == len(self._data) - 1
            and len(quotes) % 2 == 0
        ):
            # What follows decides whether it closes.
            quotes = quotes[:-1]
        opens, closes = quotes[0::2], quotes[1::2]
        before = self.byte_before(opens)
        opens_well = (before == self._delimiter) | (before == _NEWLINE)
        doubled = opens[1:] == closes[: len(opens) - 1] + 1
        opens_well[1:] |= doubled
        after = self._data[np.minimum(closes + 1, len(self._data) - 1)]
        closes_well = (
            (after == self._delimiter)
            | (after == _NEWLINE)
            | (after == _RETURN)
            | (after == self._quote)
        )
        if not opens_well.all() or not closes_well.all():
            return None
        if len(opens) == len(closes):
            return _Quoted(opens, closes)
        begins = np.flatnonzero(np.concatenate([[True], ~doubled]))
        open_at = int(opens[begins[-1]])
        if self._gives_up(open_at):
            return None
        return _Quoted(opens[: begins[-1]], closes[: begins[-1]], open_at)

    def _one_by_one(self, quotes: list[int]) -> _Quoted:
        opens, closes = [], []
        number = 0
        while number < len(quotes):
            begin = quotes[number]
            if self._begins_field(begin):
                after = self._close(quotes, number + 1)
                if after < len(quotes) and self._may_close(begin, quotes[after]):
                    opens.append(begin)
                    closes.append(quotes[after])
                    number = after
                elif after >= len(quotes) and not self._gives_up(begin):
                    return _Quoted(_places(opens), _places(closes), begin)
            number += 1
        return _Quoted(_places(opens), _places(closes))

    def _begins_field(self, place: int) -> bool:
        before = self._content[place - 1] if place else self._before
        return before in (self._delimiter, _NEWLINE)

    def _close(self, quotes: list[int], number: int) -> int:
        """Return the number of the first quote from `number` that is not doubled."""
        while number < len(quotes):
            place = quotes[number]
            if number + 1 < len(quotes) and quotes[number + 1] == place + 1:
                number += 2
            elif place == len(self._content) - 1 and not self._last:
                return len(quotes)
            else:
                return number
        return number

    def _may_close(self, begin: int, end: int) -> bool:
        """Return whether a quote closes a field, or else opens a later one."""
        after = self._content[end + 1 : end + 2]
        return (
            after in (b"", b"\n", b"\r")
            or after[0] == self._delimiter
            or b"\n" not in self._content[begin:end]
        )

    def _gives_up(self, begin: int) -> bool:
        return self._last or len(self._content) - begin > LONGEST_RECORD


def _places(values: list[int]) -> _Places:
    return np.asarray(values, np.int64)


def scan(path: Path, *, quote: str, delimiter: str) -> index.Offsets:
    """Return the offset of each non-blank line, and the end of the file.

    Reads the file once, in blocks. Raises DataError if lines end with carriage returns
    alone.
    """
    parts: list[_Places] = []
    marks = {"quote": ord(quote) if quote else -1, "delimiter": ord(delimiter)}
    with path.open("rb") as file:
        rest = file.read(len(_UTF8_MARK))
        at = line_start = len(_UTF8_MARK) if rest == _UTF8_MARK else 0
        rest = b"" if at else rest
        before = _NEWLINE
        any_newline = any_return = last = False
        while not last:
            content = file.read(_BLOCK_BYTES)
            last = not content
            content = rest + content
            block = _Block(content, before=before, last=last, **marks)
            quoted = block.quoted()
            keep = len(content) if quoted.open_at < 0 else quoted.open_at
            newlines = block.newlines[: np.searchsorted(block.newlines, keep)]
            newlines = newlines[~quoted.inside(newlines)]
            any_newline |= bool(len(newlines))
            any_return |= b"\r" in content[:-1]
            if len(newlines):
                ends = newlines + (at + 1)
                starts = np.concatenate([[line_start], ends[:-1]])
                sizes = ends - starts
                blank = sizes == 1
                blank |= (sizes == 2) & (block.byte_before(newlines) == _RETURN)
                parts.append(starts[~blank])
                line_start = int(ends[-1])
            if keep:
                before = content[keep - 1]
            rest = content[keep:]
            at += keep
    if any_return and not any_newline:
        raise DataError(
            f"{path}: its lines end with carriage returns alone, expected newlines; "
            f"convert it, as with `tr '\\r' '\\n' < {path.name}`"
        )
    only_return = at - line_start == 1 and before == _RETURN
    if line_start < at and not only_return:
        parts.append(_places([line_start]))
    parts.append(_places([at]))
    return np.concatenate(parts).astype(np.int64, copy=False)
