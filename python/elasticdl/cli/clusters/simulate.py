"""`simulate`: what a cluster of many jobs would do, under one policy or several.

Owns the verb's arguments and output. The clock is `simulator.simulation`'s, the table
`views.terminal.simulation`'s, the page `views.report.simulation`'s.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_verb, whole_number
from elasticdl.errors import ExitCode, SpecError

if TYPE_CHECKING:
    from elasticdl.simulator.course import Course
    from elasticdl.simulator.outcome import Outcome
    from elasticdl.simulator.trace import Trace

_IMPORTS = ("pollux", "philly", "helios")
_ALL = "gang,fixed,edl,elastic"


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "simulate",
        handler=simulate,
        help_text="simulate a cluster of many jobs, policy beside policy",
        description="Simulates a cluster on a clock of its own, with the rules of the "
        "planner and of masters as\nthey are, and prints one table. A trace is a small "
        "YAML file (docs/cluster-simulator.md), or the name\nof one that comes along "
        "(--list).",
        examples=(
            "elasticdl simulate --list",
            "elasticdl simulate two-jobs gpus",
            "elasticdl simulate day --policy gang,elastic --report day.html",
            "elasticdl simulate mine.yaml --seed 7 --json",
            "elasticdl simulate --import philly cluster_job_log --most 200",
        ),
    )
    parser.add_argument(
        "traces",
        nargs="*",
        metavar="TRACE",
        help="a file, or the name of a shipped one",
    )
    parser.add_argument("--list", action="store_true", help="name the shipped traces")
    parser.add_argument(
        "--policy",
        default=_ALL,
        metavar="NAMES",
        help=f"who decides sizes, separated by commas (default: {_ALL})",
    )
    parser.add_argument(
        "--seed", type=whole_number, metavar="N", help="instead of the trace's own"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write one HTML file with charts"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON instead"
    )
    parser.add_argument(
        "--import",
        dest="kind",
        choices=_IMPORTS,
        help="TRACE is a published workload of this format",
    )
    parser.add_argument(
        "--nodes",
        default="16x4",
        metavar="COUNTxGPUS",
        help="what an imported workload runs on (default: 16x4)",
    )
    parser.add_argument(
        "--most",
        type=whole_number,
        default=0,
        metavar="N",
        help="the first N jobs of an imported workload (default: all)",
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the imported workload as a trace, and simulate nothing",
    )


def simulate(args: argparse.Namespace) -> int:
    if args.report:
        from elasticdl.views import pages

        pages.plotly_script()  # told now if it is missing
    from elasticdl.simulator.policies import new_policy
    from elasticdl.simulator.reading import shipped

    if args.list:
        return _list(shipped())
    if not args.traces:
        raise SpecError(
            "TRACE: got nothing, expected a file or the name of a shipped trace: "
            + ", ".join(shipped())
        )
    names = [name.strip() for name in args.policy.split(",") if name.strip()]
    if not names:
        raise SpecError(f"--policy: got {args.policy!r}, expected some of {_ALL}")
    for name in names:
        new_policy(name)
    traces = [_trace(args, name) for name in args.traces]
    if args.save:
        return _save(traces, args.save)
    courses = [_run(trace, names, args.seed) for trace in traces]
    _tell(args, traces, courses)
    return ExitCode.OK


def _run(trace: Trace, names: list[str], seed: int | None) -> list[Course]:
    from elasticdl.simulator.policies import new_policy
    from elasticdl.simulator.simulation import Simulation

    courses = []
    for name in names:
        _progress(f"{trace.name} under {name} ...")
        courses.append(Simulation(trace, new_policy(name), seed=seed).run())
    _progress("")
    return courses


def _tell(
    args: argparse.Namespace, traces: list[Trace], courses: list[list[Course]]
) -> None:
    from elasticdl.simulator.outcome import outcome

    found = [
        outcome(course, trace)
        for trace, each in zip(traces, courses, strict=True)
        for course in each
    ]
    if args.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        _print(found)
    if args.report:
        from elasticdl.views.report.simulation import Simulated, simulation_page

        both = zip(traces, courses, strict=True)
        page = simulation_page([Simulated(trace, tuple(each)) for trace, each in both])
        args.report.parent.mkdir(parents=True, exist_ok=True)
        args.report.write_text(page, encoding="utf-8")
        print(f"charts: {args.report}", file=sys.stderr if args.json else sys.stdout)


def _trace(args: argparse.Namespace, name: str) -> Trace:
    from elasticdl.simulator.imports import Fleet, import_trace
    from elasticdl.simulator.reading import load_trace
    from elasticdl.simulator.trace import MOST_NODES

    if not args.kind:
        if args.save:
            raise SpecError("--save: got a trace already, expected --import beside it")
        return load_trace(name)
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", args.nodes)
    if match is None:
        raise SpecError(
            f"--nodes: got {args.nodes!r}, expected nodes and GPUs of each, as 16x4"
        )
    if int(match[1]) > MOST_NODES:
        raise SpecError(f"--nodes: got {match[1]} nodes, expected at most {MOST_NODES}")
    fleet = Fleet(int(match[1]), int(match[2]))
    return import_trace(args.kind, Path(name), fleet=fleet, most=args.most)


def _save(traces: list[Trace], path: Path) -> int:
    from elasticdl.simulator.reading import dump_trace

    if len(traces) != 1:
        raise SpecError(f"--save: got {len(traces)} files, expected one")
    path.write_text(dump_trace(traces[0]), encoding="utf-8")
    print(f"{len(traces[0].jobs)} jobs: {path}")
    return ExitCode.OK


def _list(names: list[str]) -> int:
    from elasticdl.simulator.reading import load_trace

    wide = max(map(len, names))
    for name in names:
        print(f"{name:{wide}}  {load_trace(name).about}")
    return ExitCode.OK


def _print(found: list[Outcome]) -> None:
    from rich.console import Console

    from elasticdl.views.terminal.simulation import EXPLAINED, WIDTH, outcomes_table

    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = WIDTH
    console.print(outcomes_table(found, console.width))
    console.print(EXPLAINED, style="dim")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
