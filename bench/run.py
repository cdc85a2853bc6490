"""Measures the product through its public paths and prints ratios beside their bars.

    python bench/run.py                    everything; long
    python bench/run.py --short            what takes a few minutes
    python bench/run.py --only ps_step     one benchmark

Writes bench/results.json: a list of {name, what, ratio, low, high, bar, better, ok}.
Nothing here is asserted: the exit code is 0 whatever the figures are, and 1 when a
benchmark could not be run. With --only the other rows of the file stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

# Before anything imports TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# The tests' folder has members without TensorFlow, and networks for them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import registry
from frame import Row
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results.json"


def main() -> int:
    benchmarks = registry.benchmarks()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=sorted(benchmarks), help="run this one")
    parser.add_argument("--short", action="store_true", help="leave out the long ones")
    args = parser.parse_args()
    chosen = {
        name: benchmark
        for name, benchmark in benchmarks.items()
        if name == args.only
        or (not args.only and (benchmark.short or not args.short))
    }  # fmt: skip
    rows: list[Row] = []
    failed: list[str] = []
    minutes = sum(benchmark.seconds for benchmark in chosen.values()) / 60
    print(f"{len(chosen)} benchmarks, about {minutes:.0f} min", file=sys.stderr)
    for number, (name, benchmark) in enumerate(chosen.items(), 1):
        print(
            f"[{number}/{len(chosen)}] {name}, about {benchmark.seconds:.0f} s",
            file=sys.stderr,
        )
        began = time.monotonic()
        try:
            made = benchmark.run()
        except Exception:  # noqa: BLE001 - border: one that fails must not hide others
            traceback.print_exc()
            failed.append(name)
            continue
        rows += made
        for row in made:
            print(
                f"    {row.name}: {short(row.ratio)} (bar {sign(row)} {row.bar:g}) "
                f"{'ok' if row.ok else 'MISSED'}, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
            )
    show(rows)
    write(rows, keep_others=bool(args.only))
    missed = [row.name for row in rows if not row.ok]
    print(f"{len(rows) - len(missed)} of {len(rows)} reach their bars", end="")
    print(f"; missed: {', '.join(missed)}" if missed else "")
    print(f"written to {os.path.relpath(RESULTS)}")
    if failed:
        print(f"could not be run: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def sign(row: Row) -> str:
    return ">=" if row.better == "higher" else "<="


def short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def show(rows: list[Row]) -> None:
    table = Table(title="Ratios of this run: median, and the middle 80 % of rounds")
    for column, side in [
        ("benchmark", "left"), ("what", "left"), ("median", "right"),
        ("low - high", "right"), ("bar", "right"), ("", "left"),
    ]:  # fmt: skip
        table.add_column(
            column, justify=side, no_wrap=column != "what", overflow="fold"
        )
    for row in rows:
        table.add_row(
            row.name, row.what, short(row.ratio),
            f"{short(row.low)} - {short(row.high)}", f"{sign(row)} {row.bar:g}",
            "[green]ok[/]" if row.ok else "[red]MISSED[/]",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def write(rows: list[Row], *, keep_others: bool) -> None:
    results = [asdict(row) for row in rows]
    if keep_others and RESULTS.exists():
        fresh = {row.name for row in rows}
        old = json.loads(RESULTS.read_text())
        results = [r for r in old if r["name"] not in fresh] + results
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
