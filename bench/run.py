"""Measures the product through its public paths and prints figures beside their bars.

    python bench/run.py                    all benchmarks
    python bench/run.py --only ps_lost     one of them
    python bench/run.py --runs 7           more repetitions

Writes bench/results.json: a list of {name, what, unit, value, low, high, bar, better,
ok}; `value` is the median, `high` the 95th percentile, `low` the fastest. Nothing here
is asserted: the exit code is 0 whatever the figures are, unless a benchmark could not
be run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))
import recovery

BENCHMARKS = {**recovery.BENCHMARKS}
RESULTS = Path(__file__).resolve().parent / "results.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run this one")
    parser.add_argument("--runs", type=int, default=5, help="repetitions (default 5)")
    args = parser.parse_args()
    names = [args.only] if args.only else list(BENCHMARKS)
    results = []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name} ...", flush=True)
        results += [vars(figure) for figure in BENCHMARKS[name](args.runs)]
    show(results)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    missed = [r["name"] for r in results if not r["ok"]]
    print(
        f"{len(results) - len(missed)} of {len(results)} within their bars"
        + (f"; outside: {', '.join(missed)}" if missed else "")
        + f"; written to {RESULTS.relative_to(Path.cwd())}"
        if RESULTS.is_relative_to(Path.cwd())
        else ""
    )
    return 0


def show(results: list[dict[str, object]]) -> None:
    table = Table(title="Figures of this run")
    for column, side in [
        ("benchmark", "left"), ("what", "left"), ("low", "right"),
        ("median", "right"), ("p95", "right"), ("bar", "right"), ("", "left"),
    ]:  # fmt: skip
        table.add_column(column, justify=side, overflow="fold")
    for r in results:
        unit = r["unit"]
        table.add_row(
            str(r["name"]), str(r["what"]),
            *(f"{r[key]:.2f} {unit}" for key in ("low", "value", "high")),
            f"{'<=' if r['better'] == 'lower' else '>='} {r['bar']} {unit}",
            "ok" if r["ok"] else "MISSED",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    sys.exit(main())
