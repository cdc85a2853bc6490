"""`explain`: why replicas wait, ended, came back, and why edits were taken or refused.

Owns the verb's arguments and what is shown of which replica. Works on the decisions
that the master noted in the job's history, here or in a cluster, running or ended.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.cli.options.where import add_any_job, find_job
from elasticdl.errors import ExitCode, NotFoundError
from elasticdl.job.names import Role
from elasticdl.job.spec.problems import nearest
from elasticdl.job.words import HappeningKind

if TYPE_CHECKING:
    from elasticdl.client import JobView
    from elasticdl.job.decision import Decision

_MASTER = str(Role.MASTER)
_OF_MASTER = (HappeningKind.MASTER, HappeningKind.STATE, HappeningKind.ATTENTION)
# What nobody asks about a whole job; `--all` shows it too.
_ROUTINE = (HappeningKind.JOINED, HappeningKind.CHECKPOINT)
_MOST_NAMES = 12


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "explain",
        handler=explain,
        help_text="tell what happened to a job or a replica, and why",
        description="Shows what happened and why: replicas that wait, were lost, were "
        "replaced (and\nafter how long the new one worked), sizes and other edits "
        "that were taken or\nrefused, checkpoints, rewinds, restarts of the master. "
        "From the job's history,\nso also when it has ended.",
        examples=(
            "elasticdl explain digits",
            "elasticdl explain digits worker-3",
            "elasticdl explain digits --all       # also each start and checkpoint",
            "elasticdl explain digits ps-0 -n ml  # a job in a cluster",
            "elasticdl explain digits --json | jq '.decisions[].cause'",
        ),
    )
    add_any_job(parser)
    parser.add_argument(
        "replica",
        metavar="ROLE-INDEX",
        nargs="?",
        help="as worker-1, ps-0, or master; default: the whole job",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print it as JSON")
    how.add_argument(
        "--all",
        action="store_true",
        help="also each start of a replica and each checkpoint",
    )


def explain(args: argparse.Namespace) -> int:
    job = find_job(args)
    view, decisions = job.view(), job.history().decisions
    if args.replica:
        decisions = about(args.replica, decisions, view)
    if args.json:
        print(json.dumps(_document(view, args.replica, decisions), indent=2))
        return ExitCode.OK
    from rich.console import Console

    from elasticdl.views.terminal.explain import explain_view

    if not (args.replica or args.all):
        decisions = [one for one in decisions if one.kind not in _ROUTINE]
    shown = explain_view(view, decisions, replica=args.replica or "")
    Console(highlight=False, markup=False).print(shown, crop=False)
    return ExitCode.OK


def about(
    replica: str, decisions: Sequence[Decision], view: JobView
) -> Sequence[Decision]:
    """Return the decisions about a replica. Raises NotFoundError if it is unknown.

    Those that it came for, and those that it made are among them.
    """
    if replica in (_MASTER, f"{_MASTER}-0"):
        return [one for one in decisions if one.kind in _OF_MASTER]
    found = [one for one in decisions if replica in (one.replica, one.replacement)]
    living = {one.name for one in view.status.replicas} if view.status else set()
    if found or replica in living:
        return found
    known = living.union(*({one.replica, one.replacement} for one in decisions))
    names = sorted(known - {""}, key=_order)
    near = nearest(replica, names)
    hint = f"did you mean {near!r}? " if near else ""
    listed = ", ".join([_MASTER, *names[:_MOST_NAMES]])
    more = len(names) - _MOST_NAMES
    raise NotFoundError(
        f"job {view.name} knows no replica {replica!r}; {hint}known are: {listed}"
        + (f" and {more} more" if more > 0 else "")
    )


def _order(name: str) -> tuple[str, int]:
    role, _, index = name.partition("-")
    return role, int(index) if index.isdecimal() else 0


def _document(
    view: JobView, replica: str | None, decisions: Sequence[Decision]
) -> dict[str, object]:
    replicas = view.status.replicas if view.status else []
    told = view.status or view.report
    message = (told.message if told else "") or view.note
    return {
        "job": view.name,
        "place": view.place,
        "condition": str(view.condition),
        "message": message,
        "now": [
            one.model_dump(
                mode="json", include={"name", "state", "reason", "since", "phase"}
            )
            for one in replicas
            if replica in (None, one.name)
        ],
        "decisions": [one.model_dump(mode="json") for one in decisions],
    }
