"""Four hundred kills in the middle of exchanges, and what each cost the others.

    python -m tests.soak.group_kills
    python -m tests.soak.group_kills --kills 20 --seed 7

Members without TensorFlow (tests/integration/collective). Fails if two members ever
differ, a step is left out, or a step that was acknowledged was not made.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

from tests.integration.collective.playing_master import kill_at_random

SIZES = {"1 MB": 250_000, "10 MB": 2_500_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kills",
        type=int,
        default=100,
        help="for each size, by sockets and in lent memory",
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for (name, size), lends in itertools.product(SIZES.items(), (False, True)):
        pauses = sorted(kill_at_random(size, args.kills, seed=args.seed, lends=lends))
        late = pauses[min(len(pauses) - 1, round(0.95 * (len(pauses) - 1)))]
        how = "lent memory" if lends else "sockets"
        print(
            f"{name} by {how}: {len(pauses)} kills; longest pause between two steps of "
            f"a member that was left: median {statistics.median(pauses):.2f} s, "
            f"p95 {late:.2f} s, longest {pauses[-1]:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
