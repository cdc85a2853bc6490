"""CSV files: ranges of lines through a side-car index, quoted newlines respected.

Owns the format; where records begin is found by `csv_scan`. Called by the reader of
many files, by conversion and `data info`. Must not know what the columns mean.

A record is a line's text without its end. Blank lines are no records, a byte order
mark and the header line are none either. A line with another number of columns than
the header (or, without one, than the first line) is a bad record.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from elasticdl.data.formats import index
from elasticdl.data.formats.csv_scan import LONGEST_RECORD, scan
from elasticdl.data.formats.files import FilePool
from elasticdl.data.records import BadRecords, Metadata
from elasticdl.errors import DataError

log = logging.getLogger(__name__)

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_ENDS = b"\r\n"
# The csv module's own limit for one field is 128 KiB, for the whole process.
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))


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
        """Return the specification's options. Raises DataError naming the mistake."""
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
        """Return a record's columns; none if the text is more than one line.

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
        """Return a key of all options on which the records' offsets depend."""
        return f"csv 2 {self.header} {self.quote} {self.delimiter}"


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
    twice = next((name for name in value if value.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"readerParams.columns: got {twice!r} {value.count(twice)} times, expected "
            "a name of its own for each column"
        )
    return tuple(value)


class CsvReader:
    """Reads ranges of one CSV file, each by a single read. Thread-safe."""

    def __init__(self, path: Path, pool: FilePool, options: CsvOptions) -> None:
        """Load or build the index. Raises DataError if the file is not CSV."""
        self._path = path
        self._pool = pool
        self._options = options
        _refuse_other_encodings(path, pool)
        lines = index.load_or_build(
            path,
            options.index_kind,
            lambda path: scan(path, quote=options.quote, delimiter=options.delimiter),
        )
        has_header = options.header and len(lines) > 1
        self._offsets = lines[1:] if has_header else lines
        self._columns = self._find_columns(lines)

    def _find_columns(self, lines: index.Offsets) -> tuple[str, ...]:
        options = self._options
        if not options.header or len(lines) < 2:
            return options.columns
        start, end = int(lines[0]), int(lines[1])
        if end - start > LONGEST_RECORD:
            raise DataError(f"{self._path}: the header is {_too_long(end - start)}")
        text = self._pool.pread(self._path, start, end - start).rstrip(_ENDS)
        try:
            names = tuple(name.strip() for name in options.split(text.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path}: the header is not UTF-8 text ({error.reason} at byte "
                f"{error.start}); convert the file to UTF-8"
            ) from error
        except csv.Error as error:
            raise DataError(
                f"{self._path}: the header is {_not_csv(error)}; mend the first line, "
                "or set readerParams.header to false if there is no header"
            ) from error
        self._check_names(names)
        return names

    def _check_names(self, names: tuple[str, ...]) -> None:
        """Warn of names that look like data. Raises DataError where they are no names.

        Whole numbers are names, too, as pandas gives them to columns without any.
        """
        columns = self._options.columns
        data = "if the first line is data, set readerParams.header to false"
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"{self._path}: the header names {twice!r} {names.count(twice)} times; "
                f"each column needs a name of its own; {data}"
            )
        if columns and columns != names:
            raise DataError(
                f"{self._path}: the header names {list(names)}, readerParams.columns "
                f"{list(columns)}; leave readerParams.columns out, or set "
                "header to false if the first line is data"
            )
        number = next((name for name in names if _is_fraction(name)), None)
        if number is not None and not columns:
            log.warning(
                "%s: the first line is taken for the names of the columns, and one is "
                "%s; %s",
                self._path,
                number,
                data,
            )

    @property
    def num_records(self) -> int:
        """Records in the file, bad ones included."""
        return len(self._offsets) - 1

    @property
    def metadata(self) -> Metadata:
        """The column names, if a header or the options give them, and the dialect."""
        marks = {"delimiter": self._options.delimiter, "quote": self._options.quote}
        return Metadata(column_names=self._columns, extra=marks)

    def _num_columns(self) -> int:
        if self._columns:
            return len(self._columns)
        start, end = int(self._offsets[0]), int(self._offsets[1])
        length = min(end - start, LONGEST_RECORD)
        first = self._pool.pread(self._path, start, length).rstrip(_ENDS)
        try:
            return len(self._options.split(first.decode("utf-8", "replace")))
        except csv.Error as error:
            raise DataError(
                f"{self._path}: the first line is {_not_csv(error)}, and there is no "
                "header that tells the number of columns; mend it, or name the columns "
                "with readerParams.columns"
            ) from error

    def read(self, start: int, end: int, bad: BadRecords) -> list[bytes]:
        """Return the good records of [start, end); report the others to `bad`."""
        offsets = self._offsets[start : end + 1].tolist()
        if len(offsets) < 2:
            return []
        expected = self._num_columns()
        values: list[bytes] = []
        number = start
        for run in index.runs(offsets, longest=LONGEST_RECORD):
            values += self._read_run(number, run, expected, bad)
            number += len(run) - 1
        return values

    def _read_run(
        self, number: int, offsets: list[int], expected: int, bad: BadRecords
    ) -> list[bytes]:
        """Return the good records between offsets, the first being `number`."""
        base, end = offsets[0], offsets[-1]
        if len(offsets) == 2 and end - base > LONGEST_RECORD:
            bad.add(number, f"{_too_long(end - base)} (at byte {base})")
            return []
        data = self._pool.pread(self._path, base, end - base)
        values = []
        for i, (begin, stop) in enumerate(pairwise(offsets)):
            line = data[begin - base : stop - base].rstrip(_ENDS)
            reason = self._what_is_wrong(line, expected)
            if reason:
                bad.add(number + i, f"{reason} (at byte {begin})")
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
            got, problem = 0, _not_csv(error)
        else:
            problem = f"got {got} columns, expected {expected}"
        if got == expected:
            return ""
        if b"\n" in line:
            lines = line.count(b"\n") + 1
            problem += f"; perhaps a quote that is not closed: it spans {lines} lines"
        return problem


def _is_fraction(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "." in text


def _too_long(num_bytes: int) -> str:
    return f"a line of {num_bytes} bytes, expected at most {LONGEST_RECORD}"


def _not_csv(error: csv.Error) -> str:
    reason = str(error)
    if reason == "unexpected end of data":
        reason = "a quote is not closed"
    return f"not CSV: {reason}"


def _refuse_other_encodings(path: Path, pool: FilePool) -> None:
    if pool.pread(path, 0, 2) in _UTF16_MARKS:
        raise DataError(
            f"{path}: got UTF-16 text, expected UTF-8; convert it, as with `iconv -f "
            f"UTF-16 -t UTF-8 {path.name}`"
        )
