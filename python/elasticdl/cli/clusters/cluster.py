"""`cluster` and `plan`: what a cluster has and who holds it, and what would be decided.

Owns the verbs' arguments and output. Both look at the cluster as a controller does, and
write nothing to it.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.cli.options.where import add_cluster_options, where
from elasticdl.errors import ExitCode, PlatformError, SpecError

if TYPE_CHECKING:
    from elasticdl.client.cluster.planning import SavedView
    from elasticdl.planner.outcome import Plan
    from elasticdl.planner.view import Settings

_EVERY_SECONDS = 2.0
_MOST_SECONDS = 86_400.0


def add_parser(verbs: Verbs) -> None:
    """Add both verbs."""
    parser = add_verb(
        verbs,
        "cluster",
        handler=cluster,
        help_text="show what a cluster has, who holds it, and the sizes of its jobs",
        description="Shows what the nodes of a cluster have, what serving, training "
        "and others hold\nof it, the ceiling up to which workers are added; and for "
        "each job how many\nworkers it has, was granted, and why. It takes the right "
        "to list nodes and pods.",
        examples=(
            "elasticdl cluster",
            "elasticdl cluster --watch",
            "elasticdl cluster --nodes --context prod",
            "elasticdl cluster --json | jq '.jobs[] | {name, granted, why}'",
            "elasticdl cluster --every 10 --csv use.csv   # until Ctrl-C",
        ),
    )
    add_cluster_options(parser)
    parser.add_argument("--nodes", action="store_true", help="each node too")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="until Ctrl-C")
    how.add_argument("--json", action="store_true", help="print it as JSON")
    how.add_argument(
        "--csv", type=Path, metavar="FILE", help="add a line to a file for each look"
    )
    parser.add_argument(
        "--every",
        type=float,
        default=_EVERY_SECONDS,
        metavar="S",
        help=f"seconds between two looks (default {_EVERY_SECONDS:g})",
    )
    parser.add_argument("--times", type=int, metavar="N", help="end after N looks")
    _add_ceilings(parser)
    _add_plan(verbs)


def _add_plan(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "plan",
        handler=plan,
        help_text="show what the controller of a cluster would decide, and why",
        description="Shows which sizes a controller would give the jobs of a cluster "
        "now, who would\nleave, and why, without doing it. A view that was saved is "
        "planned again\nanywhere, always with the same result.",
        examples=(
            "elasticdl plan",
            "elasticdl plan --save view.json",
            "elasticdl plan view.json",
            "elasticdl plan view.json --ceilings cpu=0.8",
        ),
    )
    add_cluster_options(parser)
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="a view that was saved"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the view")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    _add_ceilings(parser)


def _add_ceilings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ceilings",
        default="",
        metavar="RESOURCE=SHARE,...",
        help="as the controller's, where those are not cpu=0.97,memory=0.97",
    )


def cluster(args: argparse.Namespace) -> int:
    again = args.watch or args.csv is not None
    if args.times is not None and args.times < 1:
        raise SpecError(f"--times: got {args.times}, expected 1 or more")
    if not 0 < args.every <= _MOST_SECONDS:
        raise SpecError(
            f"--every: got {args.every:g}, expected seconds above 0, at most "
            f"{_MOST_SECONDS:g}"
        )
    left = (args.times or sys.maxsize) if again else 1
    while left:
        left -= 1
        try:
            _show(args, *_look(args))
        except PlatformError as error:
            if not again:
                raise
            print(f"{time.strftime('%H:%M:%S')}  {error}", file=sys.stderr)
        if left:
            try:
                time.sleep(max(0.1, args.every))
            except KeyboardInterrupt:
                break
    return ExitCode.OK


def _show(args: argparse.Namespace, saved: SavedView, made: Plan) -> None:
    from rich.console import Console

    from elasticdl.views.terminal.cluster import cluster_view, document

    if args.json:
        print(json.dumps(document(saved.view, made), indent=2))
        return
    if args.csv is not None:
        _append(args.csv, made)
        return
    console = Console(highlight=False, markup=False)
    if args.watch:
        console.clear()
    notes = [saved.unseen] if saved.unseen else []
    shown = cluster_view(saved.view, made, nodes=args.nodes, notes=notes)
    console.print(shown, crop=False)


def plan(args: argparse.Namespace) -> int:
    from rich.console import Console

    from elasticdl.client.cluster.planning import save
    from elasticdl.views.terminal.cluster import document, plan_view

    if args.file is not None and args.save is not None:
        raise SpecError(
            "got a file and --save, expected one of them: the file is the view already"
        )
    saved, made = _look(args)
    if args.save is not None:
        try:
            save(saved, args.save)
        except OSError as error:
            raise SpecError(f"{args.save}: {error.strerror}; name another") from error
    if args.json:
        print(json.dumps(document(saved.view, made), indent=2))
        return ExitCode.OK
    notes = [saved.unseen] if saved.unseen else []
    shown = plan_view(saved.view, made, notes=notes)
    Console(highlight=False, markup=False).print(shown, crop=False)
    return ExitCode.OK


def _look(args: argparse.Namespace) -> tuple[SavedView, Plan]:
    from dataclasses import replace

    from elasticdl.client import cluster as clusters
    from elasticdl.client.cluster.planning import look, read_saved
    from elasticdl.planner.memory import Memory
    from elasticdl.planner.plan import plan as make_plan

    file = getattr(args, "file", None)
    if file is not None:
        saved = read_saved(file)
        if args.ceilings:
            saved = replace(saved, settings=_settings(args.ceilings))
    else:
        there = clusters.connect(where(args))
        saved = look(there, _settings(args.ceilings), now=time.time())
    try:
        return saved, make_plan(saved.view, Memory(), saved.settings, saved.time)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if file is None:
            raise
        raise SpecError(
            f"{file}: no plan can be made of this view ({error!r}); expected one as "
            "`elasticdl plan --save FILE` has written it"
        ) from error


def _settings(ceilings: str) -> Settings:
    from elasticdl.controller.ceilings import with_ceilings
    from elasticdl.planner.view import Settings

    return with_ceilings(Settings(), ceilings, "--ceilings")


def _append(path: Path, made: Plan) -> None:
    from elasticdl.views.terminal.cluster import COLUMNS, csv_row

    clock = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    try:
        new = not path.exists() or not path.stat().st_size
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(COLUMNS)
            writer.writerow(csv_row(made, clock=clock))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}; name another file") from error
