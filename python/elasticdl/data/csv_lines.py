"""CSV files: ranges of lines through a side-car index, quoted newlines respected.

Owns the format. Called by the reader of many files, by conversion and `data info`.
Must not know what the columns mean.

A record is a line's text without its end. Blank lines are no records, a byte order
mark and the header line are none either. A line with another number of columns than
the header (or, without one, than the first line) is a bad record.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data import index
from elasticdl.data.files import FilePool
from elasticdl.data.records import BadRecords, Metadata
from elasticdl.errors import DataError

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BLOCK_BYTES = 16 * 1024 * 1024
_NEWLINE, _RETURN = 10, 13
_ENDS = b"\r\n"


@dataclass(frozen=True)
class CsvOptions:
    """How lines are written: `data.readerParams` of a CSV source.

    Attributes:
        delimiter: One ASCII character between columns.
        header: Whether the first line names the columns.
        columns: Names of the columns; needed where there is no header, if at all.
        quote: The character around columns that hold delimiters or newlines; empty
            takes quotes as they are.
    """

    delimiter: str = ","
    header: bool = True
    columns: tuple[str, ...] = ()
    quote: str = '"'

    @staticmethod
    def from_params(params: Mapping[str, Any]) -> CsvOptions:
        """Read them from the specification. Raises DataError naming what is wrong."""
        options = CsvOptions(
            delimiter=_character(params, "delimiter", ","),
            header=_truth(params),
            columns=_names(params),
            quote=_character(params, "quote", '"', may_be_empty=True),
        )
        if options.delimiter == options.quote:
            raise DataError(
                f"readerParams.delimiter and .quote are both {options.quote!r}; they "
                "have to differ"
            )
        return options

    def split(self, line: str) -> list[str]:
        """Return a record's columns; none if it is more than one line.

        Raises csv.Error if its quotes do not fit.
        """
        if not self.quote or self.quote not in line:
            return line.split(self.delimiter)
        # Strict: a quote that is not closed must not pass with the lines it swallowed.
        rows = list(
            csv.reader(
                io.StringIO(line, newline="\n"),
                delimiter=self.delimiter,
                quotechar=self.quote,
                strict=True,
            )
        )
        return rows[0] if len(rows) == 1 else []

    @property
    def index_kind(self) -> str:
        """Every option that changes where records begin."""
        return f"csv {self.header} {self.quote}"


PARAMS = ("delimiter", "header", "columns", "quote")


def _character(
    params: Mapping[str, Any], name: str, default: str, *, may_be_empty: bool = False
) -> str:
    value = params.get(name, default)
    value = {"\\t": "\t", "tab": "\t"}.get(value, value) if value else value
    if value == "" and may_be_empty:
        return ""
    if not isinstance(value, str) or len(value) != 1 or not value.isascii():
        raise DataError(
            f"readerParams.{name}: got {value!r}, expected one ASCII character, as ','"
        )
    return value


def _truth(params: Mapping[str, Any]) -> bool:
    value = params.get("header", True)
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if not isinstance(value, bool):
        raise DataError(f"readerParams.header: got {value!r}, expected true or false")
    return value


def _names(params: Mapping[str, Any]) -> tuple[str, ...]:
    value = params.get("columns", ())
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")] if value else []
    if not isinstance(value, list | tuple) or not all(
        isinstance(name, str) for name in value
    ):
        raise DataError(
            f"readerParams.columns: got {value!r}, expected names, as [age, label]"
        )
    return tuple(value)


class CsvReader:
    """Reads ranges of one CSV file, each by a single read. Thread-safe."""

    def __init__(self, path: Path, pool: FilePool, options: CsvOptions) -> None:
        """Load or make the index. Raises DataError if the file is none of ours."""
        self._path = path
        self._pool = pool
        self._options = options
        _refuse_other_encodings(path, pool)
        lines = index.load_or_build(
            path, options.index_kind, lambda path: scan(path, quote=options.quote)
        )
        has_header = options.header and len(lines) > 1
        self._offsets = lines[1:] if has_header else lines
        self._columns = self._find_columns(lines)

    def _find_columns(self, lines: index.Offsets) -> tuple[str, ...]:
        options = self._options
        if not options.header or len(lines) < 2:
            return options.columns
        start, end = int(lines[0]), int(lines[1])
        text = self._pool.pread(self._path, start, end - start).rstrip(_ENDS)
        try:
            names = tuple(name.strip() for name in options.split(text.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path}: the header is not UTF-8 text ({error.reason} at byte "
                f"{error.start}); convert the file to UTF-8"
            ) from error
        if options.columns and options.columns != names:
            raise DataError(
                f"{self._path}: the header names {list(names)}, readerParams.columns "
                f"{list(options.columns)}; leave readerParams.columns out, or set "
                "header to false if the first line is data"
            )
        return names

    @property
    def num_records(self) -> int:
        """Records in the file, bad ones included."""
        return len(self._offsets) - 1

    @property
    def metadata(self) -> Metadata:
        """The columns' names, where a header or the options tell, and the marks."""
        marks = {"delimiter": self._options.delimiter, "quote": self._options.quote}
        return Metadata(column_names=self._columns, extra=marks)

    def _num_columns(self) -> int:
        if self._columns:
            return len(self._columns)
        start, end = int(self._offsets[0]), int(self._offsets[1])
        first = self._pool.pread(self._path, start, end - start).rstrip(_ENDS)
        return len(self._options.split(first.decode("utf-8", "replace")))

    def read(self, start: int, end: int, bad: BadRecords) -> list[bytes]:
        """Return the good records of [start, end); tell `bad` of the others."""
        offsets = self._offsets[start : end + 1].tolist()
        if len(offsets) < 2:
            return []
        base = offsets[0]
        data = self._pool.pread(self._path, base, offsets[-1] - base)
        expected = self._num_columns()
        values = []
        for i in range(len(offsets) - 1):
            line = data[offsets[i] - base : offsets[i + 1] - base].rstrip(_ENDS)
            reason = self._what_is_wrong(line, expected)
            if reason:
                bad.add(start + i, f"{reason} (at byte {offsets[i]})")
            else:
                values.append(line)
        return values

    def _what_is_wrong(self, line: bytes, expected: int) -> str:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"not UTF-8 text: {error.reason} at byte {error.start} of the line"
        try:
            got = len(self._options.split(text))
        except csv.Error as error:
            got, problem = 0, f"not CSV: {error}"
        else:
            problem = f"got {got} columns, expected {expected}"
        if got == expected:
            return ""
        if b"\n" in line:
            lines = line.count(b"\n") + 1
            problem += f"; perhaps a quote that is not closed: it spans {lines} lines"
        return problem


def _refuse_other_encodings(path: Path, pool: FilePool) -> None:
    if pool.pread(path, 0, 2) in _UTF16_MARKS:
        raise DataError(
            f"{path}: got UTF-16 text, expected UTF-8; convert it, as with `iconv -f "
            f"UTF-16 -t UTF-8 {path.name}`"
        )


def scan(path: Path, *, quote: str) -> index.Offsets:
    """Return where each line that is not blank begins, and the end of the file.

    A newline inside quotes ends no line: those with an odd number of quotes before
    them. Doubled quotes keep that number's parity, so they need no care.
    """
    parts: list[NDArray[np.int64]] = []
    at = line_start = num_quotes = 0
    last_byte = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            if at == 0 and block.startswith(_UTF8_MARK):
                line_start = len(_UTF8_MARK)
            data = np.frombuffer(block, np.uint8)
            newlines = np.flatnonzero(data == _NEWLINE)
            if quote:
                quotes = np.flatnonzero(data == ord(quote))
                before = np.searchsorted(quotes, newlines) + num_quotes
                newlines = newlines[before % 2 == 0]
                num_quotes += len(quotes)
            if len(newlines):
                ends = newlines + (at + 1)
                starts = np.concatenate([[line_start], ends[:-1]])
                sizes = ends - starts
                blank = sizes == 1
                # A line of two bytes is blank if the first is a carriage return, which
                # for the first newline of a block may lie in the block before.
                first_bytes = data[newlines - 1]
                if newlines[0] == 0:
                    first_bytes[0] = last_byte
                blank |= (sizes == 2) & (first_bytes == _RETURN)
                parts.append(starts[~blank])
                line_start = int(ends[-1])
            last_byte = block[-1]
            at += len(block)
    only_return = at - line_start == 1 and last_byte == _RETURN
    if line_start < at and not only_return:
        parts.append(np.asarray([line_start], np.int64))
    parts.append(np.asarray([at], np.int64))
    return np.concatenate(parts).astype(np.int64, copy=False)
