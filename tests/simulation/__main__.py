"""Runs seeds of the simulation: `python -m tests.simulation --seeds 0:500`.

A seed that fails is printed with what is wrong, and repeats exactly.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.simulation import importing


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def _spread(seeds: range, jobs: int, kept: list[str]) -> int:
    """Run in several processes, a portion each; the exit code of the worst."""
    size = max(1, min(500, -(-len(seeds) // jobs)))
    portions = [seeds[at : at + size] for at in range(0, len(seeds), size)]

    def one(portion: range) -> int:
        asked = f"{portion.start}:{portion.stop}"
        command = [sys.executable, "-m", "tests.simulation", "--seeds", asked]
        done = subprocess.run(
            [*command, *kept], capture_output=True, text=True, check=False
        )
        print(f"seeds {asked}: {done.stdout}{done.stderr}", flush=True)
        return done.returncode

    with ThreadPoolExecutor(jobs) as pool:
        return max(pool.map(one, portions))


def main() -> int:
    """Run; the exit code is 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=_range, default=range(500), metavar="A:B")
    parser.add_argument("--only", default="", help="faults, with commas between")
    parser.add_argument("--local", action="store_true", help="strategy local")
    parser.add_argument("--verbose", action="store_true", help="tell the course")
    parser.add_argument("--twice", action="store_true", help="compare two runs")
    parser.add_argument("--most-failures", type=int, default=1_000_000)
    parser.add_argument("--strict", action="store_true", help="open defects fail")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--lose-a-record",
        action="store_true",
        help="a worker leaves one out in silence: each seed must fail",
    )
    parser.add_argument(
        "--ids-of-before",
        action="store_true",
        help="pushes have the ids of the job's before (initFrom): many seeds must fail",
    )
    parser.add_argument(
        "--trains-on",
        action="store_true",
        help="a worker trains on while it evaluates what it has: with --local some of "
        "the seeds must fail",
    )
    options = parser.parse_args()
    if options.jobs > 1:
        switches = (
            "strict", "lose_a_record", "ids_of_before", "twice", "local", "trains_on",
        )  # fmt: skip
        kept = [f"--{one.replace('_', '-')}" for one in switches if vars(options)[one]]
        if options.only:
            kept += ["--only", options.only]
        return _spread(options.seeds, options.jobs, kept)
    importing.install()
    # Coroutines of dead masters are closed after the run: nobody is to hear of it.
    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore")
    if options.verbose:
        logging.basicConfig(
            level=logging.DEBUG, format=" " * 11 + "%(name)s %(message)s"
        )
        for loud in ("asyncio", "numba"):
            logging.getLogger(loud).setLevel(logging.WARNING)
    else:
        logging.disable(logging.CRITICAL)
    from tests.simulation import toys
    from tests.simulation.open_defects import cause_of
    from tests.simulation.run import run

    toys.lose_a_record = options.lose_a_record
    if options.ids_of_before:
        from elasticdl.rpc.ps import client as ps_client

        ps_client.new_source = lambda worker, generation: f"{worker}-{generation}"
    if options.trains_on:
        from elasticdl.master.model.evaluation_rounds import Rounds

        Rounds.stops_training = property(lambda _: False)

        def fits(_rounds: Any, current: Any, report: Any) -> bool:
            current.done_with(report.model_version)
            return True  # nor does the master compare the versions of a round's tasks

        Rounds._fits = fits  # type: ignore[method-assign]
    only = tuple(filter(None, options.only.split(",")))
    began, failed, simulated = time.perf_counter(), [], 0.0
    known: dict[str, list[int]] = {}
    for seed in options.seeds:
        outcome = run(seed, only=only, local=options.local, verbose=options.verbose)
        simulated += outcome.seconds
        found = list(outcome.problems)
        if options.twice:
            again = run(seed, only=only, local=options.local)
            if again.mark != outcome.mark:
                found.append(f"not repeatable: {outcome.mark}, then {again.mark}")
        causes = [None if options.strict else cause_of(one) for one in found]
        if found and None not in causes:
            for cause in causes:
                known.setdefault(str(cause), []).append(seed)
        elif found:
            failed.append(seed)
            print(f"seed {seed}: {outcome.faults}")
            for problem in found:
                print(f"    {problem}")
            sys.stdout.flush()
        if len(failed) >= options.most_failures:
            break
    for cause, seeds in known.items():
        numbers = " ".join(map(str, dict.fromkeys(seeds)))
        print(f"open defect: {cause}\n    met by {numbers}")
    seconds = time.perf_counter() - began
    print(
        f"{len(options.seeds)} seeds, {len(failed)} failed, {simulated:.0f} simulated "
        f"seconds in {seconds:.1f} s"
    )
    if failed:
        print(f"failed: {' '.join(map(str, failed))}")
        print("repeat one: python -m tests.simulation --verbose --seeds SEED")
    return 1 if failed else 0


if __name__ == "__main__":
    # Sets of strings must have the same order in each run.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        )
    sys.exit(main())
