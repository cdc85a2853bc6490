"""`kill`, `capacity`: fault injection into a running job.

Owns these verbs' arguments and output. Must not make a job handle a fault better than
one that came by itself.
"""

from __future__ import annotations

import argparse
import signal

from elasticdl.cli.options.arguments import Verbs, add_job, add_replica, add_verb
from elasticdl.cli.options.where import find_local
from elasticdl.errors import ExitCode


def add_parser(verbs: Verbs) -> None:
    """Add the two verbs."""
    parser = add_verb(
        verbs,
        "kill",
        handler=kill,
        help_text="fault injection: send a signal to one process of a job",
        description="Sends a signal to one process of a running job, as an accident "
        "would. The job\nhas to survive it. STOP makes a process hang, CONT lets it go "
        "on.",
        examples=(
            "elasticdl kill digits worker-1",
            "elasticdl kill digits ps-0 --signal STOP",
            "elasticdl kill digits master",
        ),
    )
    add_job(parser)
    add_replica(parser)
    parser.add_argument(
        "--signal",
        type=signal_number,
        default=signal.SIGKILL,
        metavar="NAME",
        help="name or number (default: KILL)",
    )
    parser = add_verb(
        verbs,
        "capacity",
        handler=capacity,
        help_text="fault injection: take CPUs away from the workers, or give them back",
        description="Changes the number of CPUs that a job's workers may use. With "
        "fewer, the newest\nworkers of the lowest priority are preempted; with more, "
        "pending ones start.",
        examples=(
            "elasticdl capacity digits 1",
            "elasticdl capacity digits unlimited",
        ),
    )
    add_job(parser)
    parser.add_argument(
        "cpus", type=cpus, metavar="CPUS", help="a number, or `unlimited`"
    )


def signal_number(text: str) -> int:
    """`KILL`, `SIGKILL`, `kill` or `9` -> 9. Raises what argparse shows."""
    name = text.upper().removeprefix("SIG")
    if name.isdigit() and int(name) in list(signal.Signals):
        return int(name)
    try:
        return int(signal.Signals[f"SIG{name}"])
    except KeyError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected a signal as KILL, STOP, CONT, TERM or 9"
        ) from None


def cpus(text: str) -> float | None:
    """`1.5` -> 1.5, `unlimited` -> None. Raises what argparse shows."""
    if text == "unlimited":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected CPUs, 0 or more, or `unlimited`"
        )
    return value


def kill(args: argparse.Namespace) -> int:
    job = find_local(args)
    pid = job.kill(args.replica, args.signal)
    name = signal.Signals(args.signal).name
    print(f"job {job.name}: sent {name} to {args.replica} (pid {pid})")
    return ExitCode.OK


def capacity(args: argparse.Namespace) -> int:
    job = find_local(args)
    running, preempted, pending = job.set_capacity(args.cpus)
    amount = "unlimited CPUs" if args.cpus is None else f"{args.cpus:g} CPUs"
    print(
        f"job {job.name}: {amount} for workers; {running} running, {preempted} "
        f"preempted, {pending} pending"
    )
    return ExitCode.OK
