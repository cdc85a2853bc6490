"""Conversion to RecordIO, TFRecord or Parquet shards that are read by range.

Owns which source becomes which records. Called by `elasticdl data convert`. Must not
know jobs.

Images become `image` and `label`; CSV lines typed features by column (or stay text);
NumPy, Parquet and Arrow rows features by array or column; RecordIO and TFRecord records
stay as they are, also from files that are compressed as a whole.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from elasticdl.data.formats.csv_lines import CsvOptions
from elasticdl.data.formats.detect import compression_of
from elasticdl.data.making import images, tables
from elasticdl.data.making.shards import (
    MARKER,
    Progress,
    no_progress,
    whole_folder,
    write_shards,
)
from elasticdl.data.reader import (
    FilesReader,
    check_params,
    common_format,
    find_files,
    source_name,
)
from elasticdl.data.records import BadRecord
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataFormat

_RECORDS_AT_ONCE = 4096  # Records in memory while they are written.
_BLOCK_BYTES = 1 << 20  # Bytes that are read and decompressed at a time.
# Makes zlib find out by itself whether it is gzip or zlib.
_ANY_HEADER = zlib.MAX_WBITS | 32


@dataclass(frozen=True)
class ConvertOptions:
    """Options of a conversion.

    Attributes:
        format: Of the result: RECORDIO, TFRECORD, or PARQUET (of Examples alone).
        records_per_file: Records in a shard.
        source_format: AUTO goes by the files' ending and content.
        params: For the source's reader, as CSV `delimiter`, `header`.
        keep_lines: CSV: a record is the line's text, not an Example.
        size: Images: (width, height) to bring all to.
        grayscale: Images: one channel.
        seed: Images: of their order.
        skip_bad: Leave bad records out and list them.
    """

    format: DataFormat = DataFormat.RECORDIO
    records_per_file: int = 4096
    source_format: DataFormat = DataFormat.AUTO
    params: Mapping[str, Any] = field(default_factory=dict)
    keep_lines: bool = False
    size: tuple[int, int] | None = None
    grayscale: bool = False
    seed: int = 0
    skip_bad: bool = False


@dataclass(frozen=True)
class ConvertedData:
    """The result of a conversion."""

    directory: Path
    num_records: int
    num_files: int
    details: Mapping[str, Any]
    bad: tuple[BadRecord, ...] = ()


def convert(
    source: str,
    destination: Path,
    options: ConvertOptions,
    *,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> ConvertedData:
    """Write the records of `source` (a file, folder or glob) as shards.

    The folder `destination` is there whole or not at all; its `_dataset.json` tells
    classes, columns and counts. Raises DataError if there is nothing to convert, or it
    does not fit together; BadRecordError at a bad record unless they are skipped.
    """
    if options.records_per_file < 1:
        raise DataError(
            f"got {options.records_per_file} records per file, expected 1 or more"
        )
    found = images.find_images(Path(source), seed=options.seed)
    _check_fits(source, options, are_images=found is not None)
    with whole_folder(destination, replace=overwrite) as folder:
        content: _Content
        if found is not None:
            content = _Images(found, options)
        else:
            content = _Files(source, folder / ".plain", options)
        counter = _Counter(content.total, progress)
        files = write_shards(
            counter.count(content.records()),
            folder,
            format=options.format,
            records_per_file=options.records_per_file,
        )
        shutil.rmtree(folder / ".plain", ignore_errors=True)
        if not counter.done:
            raise DataError(f"{source}: not one good record; nothing was written")
        details = {"num_records": counter.done, **content.details()}
        (folder / MARKER).write_text(json.dumps(details, indent=1) + "\n")
    return ConvertedData(
        destination, counter.done, len(files), details, tuple(content.bad)
    )


def _check_fits(source: str, options: ConvertOptions, *, are_images: bool) -> None:
    """Raise DataError for an option that would have no effect."""
    only_images = {"--size": options.size, "--grayscale": options.grayscale}
    only_files = {"--keep-lines": options.keep_lines, **options.params}
    given = [o for o, v in (only_files if are_images else only_images).items() if v]
    if given:
        name = given[0] if given[0].startswith("--") else f"--{given[0]}"
        raise DataError(
            f"{source}: {name} is for {'files of records' if are_images else 'images'}"
            f", and these are {'images' if are_images else 'none'}; leave it out"
        )


class _Counter:
    """Counts records as they pass."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done = 0
        self._total = total
        self._progress = progress

    def count(self, records: Iterator[bytes]) -> Iterator[bytes]:
        for record in records:
            yield record
            self.done += 1
            self._progress(self.done, self._total)


class _Images:
    """A folder of images."""

    def __init__(self, found: images.ImageFolder, options: ConvertOptions) -> None:
        self._found = found
        self._skip_bad = options.skip_bad
        self._decoder = images.ImageRecords(
            found, size=options.size, grayscale=options.grayscale
        )
        self.total = len(found.images)
        self.bad = self._decoder.bad

    def records(self) -> Iterator[bytes]:
        return self._decoder.records(skip_bad=self._skip_bad)

    def details(self) -> dict[str, Any]:
        """Classes by label, and the shape in which `image` is flattened."""
        return {
            "classes": list(self._found.classes),
            "image_shape": list(self._decoder.shape),
        }


class _Files:
    """Files of records; each may be compressed as a whole."""

    def __init__(self, source: str, scratch: Path, options: ConvertOptions) -> None:
        root = Path.cwd()
        # Sources keep the names of the user's files, also those decompressed first.
        files = {
            source_name(file, root): _plain(file, scratch / str(number))
            for number, file in enumerate(find_files(source, data_root=root))
        }
        self._format = options.source_format
        if self._format is DataFormat.AUTO:
            self._format = common_format(list(files.values()))
        check_params(self._format, options.params)
        self._reader = FilesReader(
            files, data_root=root, format=self._format, params=options.params
        )
        self._options = options
        self._shards = self._reader.shards()
        self._types: list[tables.ColumnType] = []
        self.total = sum(shard.num_records for shard in self._shards)
        self.bad: list[BadRecord] = []

    def records(self) -> Iterator[bytes]:
        if self._format is not DataFormat.CSV or self._options.keep_lines:
            yield from self._read(self.bad)
            return
        names = self._names()
        self._types = tables.column_types(self._rows([]), names)
        for row in self._rows(self.bad):
            yield tables.encode_row(names, self._types, row)

    def details(self) -> dict[str, Any]:
        """Columns and their types, if the format has them."""
        if self._format is not DataFormat.CSV:
            return {}
        if self._options.keep_lines:
            return {"columns": list(self._reader.metadata.column_names)}
        types = (kind.name.lower() for kind in self._types)
        return {"columns": dict(zip(self._names(), types, strict=True))}

    def _read(self, bad: list[BadRecord]) -> Iterator[bytes]:
        for shard in self._shards:
            for start in range(0, shard.end, _RECORDS_AT_ONCE):
                found = self._reader.read(
                    shard.source,
                    start,
                    min(start + _RECORDS_AT_ONCE, shard.end),
                    skip_bad=self._options.skip_bad,
                )
                bad += found.bad
                yield from found.values

    def _rows(self, bad: list[BadRecord]) -> Iterator[list[str]]:
        csv_options = CsvOptions.from_params(self._options.params)
        for line in self._read(bad):
            yield csv_options.split(line.decode())

    def _names(self) -> Sequence[str]:
        names = self._reader.metadata.column_names
        if not names:
            raise DataError(
                "the CSV source has no header, so its columns have no names; name them "
                "with --columns, or keep the lines as text with --keep-lines"
            )
        return names


_Content = _Images | _Files


def _plain(file: Path, scratch: Path) -> Path:
    """Return the file, or its decompressed content if the whole file is compressed."""
    kind = compression_of(file)
    if not kind:
        return file
    scratch.mkdir(parents=True)
    name = file.name.removesuffix(".gz").removesuffix(".zlib")
    plain = scratch / name
    try:
        with file.open("rb") as compressed, plain.open("wb") as target:
            _inflate(compressed, target)
    except zlib.error as error:
        raise DataError(
            f"{file}: is no whole {kind} file: {error}; fetch or write it again"
        ) from error
    return plain


def _inflate(compressed: BinaryIO, target: BinaryIO) -> None:
    """Decompress a stream. Raises zlib.error if it is broken or cut."""
    inflate = zlib.decompressobj(_ANY_HEADER)
    is_inside = False
    while block := compressed.read(_BLOCK_BYTES):
        while block:
            target.write(inflate.decompress(block))
            block = inflate.unused_data
            is_inside = not inflate.eof
            if inflate.eof:
                # A gzip file may be several, one behind the other.
                inflate = zlib.decompressobj(_ANY_HEADER)
    if is_inside:
        raise zlib.error("it is cut")
