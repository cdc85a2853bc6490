"""`elasticdl data make|convert|info`: built-in data sets, conversion, a look at data.

Owns these commands' flags and what they print. Called by `cli.main`. The work is done
in `elasticdl.data`.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.cli.options.arguments import whole_number
from elasticdl.data.making.catalog import DEFAULT_SHARE, EMPLOYEE, NAMES, WRITABLE
from elasticdl.errors import BadRecordError, DataError
from elasticdl.job.spec.kinds import DataFormat
from elasticdl.views.formatting import plural

if TYPE_CHECKING:
    from elasticdl.data.making.info import DataInfo
    from elasticdl.data.records import Metadata

_FILES_SHOWN = 20  # More files do not fit a screen.
_BAD_SHOWN = 10  # Enough to see what is wrong with the records.
_BAD_HINT = "; correct it, or leave it out with --skip-bad (records count from 0)"


def add_parser(subparsers: Any) -> None:
    """Add the verb `data` and its three commands to the command line."""
    data = subparsers.add_parser(
        "data",
        help="make, convert and look at data",
        description="Make built-in data sets, convert files to shards that are read "
        "by range, look at data.",
        epilog="examples:\n"
        "  elasticdl data make digits\n"
        "  elasticdl data convert photos/ data/photos --size 64x64\n"
        "  elasticdl data info data/digits/train\n"
        "\n`elasticdl data make --help` and so on tell more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = data.add_subparsers(dest="data_command", required=True, metavar="COMMAND")
    _add_make(verbs)
    _add_convert(verbs)
    _add_info(verbs)


def _add_make(verbs: Any) -> None:
    parser = verbs.add_parser(
        "make",
        help="make a built-in data set",
        description="Write a built-in data set to DIR/NAME/train and DIR/NAME/test; "
        "does nothing if it is there.",
        epilog="examples:\n"
        "  elasticdl data make digits\n"
        "  elasticdl data make mnist --dir /data --format tfrecord\n"
        "\ndigits, breast_cancer and wine come with scikit-learn; mnist, fashion_mnist"
        "\nand cifar10 are fetched through keras.datasets, once. employee is a made-up"
        "\ntable for `elasticdl sql`, written as DIR/employee.csv.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", metavar="NAME", help=f"one of {', '.join((*NAMES, EMPLOYEE))}"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder (default: data)",
    )
    _add_output_flags(parser, records_per_file=0, meaning="0 makes about four files")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the split and the order (default: 0)"
    )
    parser.add_argument(
        "--test-share",
        type=float,
        default=DEFAULT_SHARE,
        help="share of test records, where the data set has no test part of its own "
        f"(default: {DEFAULT_SHARE})",
    )
    parser.set_defaults(handler=_make)


def _add_convert(verbs: Any) -> None:
    parser = verbs.add_parser(
        "convert",
        help="convert images, CSV, NumPy, Parquet and record files to shards",
        description="Write the records of SOURCE as RecordIO, TFRecord or Parquet "
        "shards into the folder DEST.",
        epilog="examples:\n"
        "  elasticdl data convert photos/ data/photos --size 64x64\n"
        "  elasticdl data convert census.csv data/census\n"
        "  elasticdl data convert mnist.npz data/mnist --arrays image=x_train,"
        "label=y_train\n"
        "  elasticdl data convert old.tfrecord.gz data/new --format tfrecord\n"
        "  elasticdl data convert 'clicks/*.parquet' data/clicks --columns user,label\n"
        "\nSOURCE is a file, a folder, a glob in quotes, or a folder with a sub-folder"
        "\nof images for each class. Columns, classes and counts are noted in"
        "\nDEST/_dataset.json.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="file, folder or glob")
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder")
    _add_output_flags(parser, records_per_file=4096, meaning="default: 4096")
    _add_source_flags(parser)
    parser.add_argument(
        "--keep-lines", action="store_true", help="CSV: keep lines as text"
    )
    parser.add_argument(
        "--size",
        type=_size,
        metavar="WxH",
        help="images: bring all to this width and height",
    )
    parser.add_argument("--grayscale", action="store_true", help="images: one channel")
    parser.add_argument(
        "--seed", type=int, default=0, help="images: of their order (default: 0)"
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave bad records out and list them"
    )
    parser.set_defaults(handler=_convert)


def _add_info(verbs: Any) -> None:
    parser = verbs.add_parser(
        "info",
        help="show counts, sizes and first records",
        description="Show the files, counts, sizes, columns and first records of PATH.",
        epilog="examples:\n"
        "  elasticdl data info data/digits/train\n"
        "  elasticdl data info 'logs/*.csv' --delimiter tab --records 1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="file, folder or glob")
    parser.add_argument(
        "--records",
        type=whole_number,
        default=3,
        metavar="N",
        help="first records to show (default: 3)",
    )
    _add_source_flags(parser)
    parser.set_defaults(handler=_info)


def _add_output_flags(
    parser: argparse.ArgumentParser, *, records_per_file: int, meaning: str
) -> None:
    parser.add_argument(
        "--format",
        choices=[str(one) for one in WRITABLE],
        default=str(DataFormat.RECORDIO),
        help="of the files written (default: recordio)",
    )
    parser.add_argument(
        "--records-per-file",
        type=whole_number,
        default=records_per_file,
        metavar="N",
        help=meaning,
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what is there"
    )


def _add_source_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source-format",
        choices=[str(one) for one in DataFormat],
        default=str(DataFormat.AUTO),
        help="of the files read (default: by their ending and content)",
    )
    parser.add_argument("--delimiter", help="CSV: between columns (default: ,)")
    parser.add_argument(
        "--no-header", action="store_true", help="CSV: the first line is data"
    )
    parser.add_argument(
        "--columns",
        help="CSV without a header: names, with commas; Parquet and Arrow: those to "
        "read",
    )
    parser.add_argument(
        "--arrays",
        type=_arrays,
        metavar="FEATURE=ARRAY,...",
        help=".npz: which arrays to take, and under which names",
    )


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected width and height, as 64x64"
        )
    return int(match[1]), int(match[2])


def _arrays(text: str) -> dict[str, str]:
    pairs = [pair.split("=") for pair in text.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected names, as image=x_train,label=y_train"
        )
    return dict(pairs)


def _params(args: argparse.Namespace) -> dict[str, Any]:
    """Return the reader's parameters: those that a flag was given for."""
    params: dict[str, Any] = {}
    if args.delimiter is not None:
        params["delimiter"] = args.delimiter
    if args.no_header:
        params["header"] = False
    if args.columns is not None:
        params["columns"] = args.columns
    if args.arrays is not None:
        params["arrays"] = args.arrays
    return params


def _make(args: argparse.Namespace) -> int:
    if args.name == EMPLOYEE:
        return _make_employee(args)
    from elasticdl.data.making.datasets import DatasetOptions, make_dataset
    from elasticdl.views.terminal.progress import RecordProgress

    options = DatasetOptions(
        format=DataFormat(args.format),
        records_per_file=args.records_per_file,
        seed=args.seed,
        validation_share=args.test_share,
    )
    with RecordProgress(f"making {args.name}") as progress:
        made = make_dataset(
            args.name,
            args.dir,
            options,
            overwrite=args.overwrite,
            progress=progress.update,
        )
    print(
        f"{'made' if made.made else 'there already'}: "
        f"{plural(made.num_train, 'training record')} in {made.train}, "
        f"{plural(made.num_test, 'test record')} in {made.test}"
    )
    return 0


def _make_employee(args: argparse.Namespace) -> int:
    from elasticdl.data.making.employee import make_employee

    made = make_employee(args.dir, seed=args.seed, overwrite=args.overwrite)
    print(
        f"{'made' if made.made else 'there already'}: {made.num_rows} rows in "
        f"{made.path}; no model is right more often than {made.best_accuracy:.4f}"
    )
    return 0


def _convert(args: argparse.Namespace) -> int:
    from elasticdl.data.making.convert import ConvertOptions, convert
    from elasticdl.views.terminal.progress import RecordProgress

    options = ConvertOptions(
        format=DataFormat(args.format),
        records_per_file=args.records_per_file,
        source_format=DataFormat(args.source_format),
        params=_params(args),
        keep_lines=args.keep_lines,
        size=args.size,
        grayscale=args.grayscale,
        seed=args.seed,
        skip_bad=args.skip_bad,
    )
    try:
        with RecordProgress(f"converting {args.source}") as progress:
            done = convert(
                args.source,
                args.destination,
                options,
                overwrite=args.overwrite,
                progress=progress.update,
            )
    except BadRecordError as error:
        hint = "" if "--skip-bad" in str(error) else _BAD_HINT
        raise DataError(f"{error}{hint}") from error
    for one in done.bad[:_BAD_SHOWN]:
        print(f"left out: {one.source}: record {one.record}: {one.reason}")
    if len(done.bad) > _BAD_SHOWN:
        print(f"left out: {len(done.bad) - _BAD_SHOWN} more")
    bad = f", {plural(len(done.bad), 'bad record')} left out" if done.bad else ""
    print(
        f"wrote {plural(done.num_records, 'record')} in "
        f"{plural(done.num_files, 'file')} to {done.directory}{bad}"
    )
    return 0


def _info(args: argparse.Namespace) -> int:
    from elasticdl.data.making.info import describe

    found = describe(
        args.path,
        data_root=Path.cwd(),
        format=DataFormat(args.source_format),
        params=_params(args),
        num_first=args.records,
    )
    print("\n".join(_lines(found)))
    return 0


def _lines(found: DataInfo) -> list[str]:
    lines = [
        f"{file.source}: {plural(file.num_records, 'record')}, {_bytes(file.num_bytes)}"
        for file in found.files[:_FILES_SHOWN]
    ]
    if len(found.files) > _FILES_SHOWN:
        lines.append(f"... and {len(found.files) - _FILES_SHOWN} more files")
    if found.metadata.column_names:
        lines.append(f"columns: {', '.join(_columns(found.metadata))}")
    groups = found.metadata.extra.get("row_groups")
    if groups:
        lines.append(
            f"row groups: {groups} in the first file, of at most "
            f"{found.metadata.extra['largest_row_group']} records (a task reads whole "
            "ones)"
        )
    for number, record in enumerate(found.first):
        lines.append(f"record {number}:")
        lines += [f"  {line}" for line in record]
    lines += [
        f"bad: {bad.source}: record {bad.record}: {bad.reason}" for bad in found.bad
    ]
    lines.append(
        f"{found.format}: {plural(found.num_records, 'record')} in "
        f"{plural(len(found.files), 'file')}, {_bytes(found.num_bytes)}"
    )
    return lines


def _columns(metadata: Metadata) -> list[str]:
    types = metadata.column_dtypes
    if not types:
        return list(metadata.column_names)
    named = zip(metadata.column_names, types, strict=True)
    return [f"{name} ({kind})" for name, kind in named]


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
