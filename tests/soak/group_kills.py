"""Two hundred kills in the middle of exchanges, and what each cost the others.

    python -m tests.soak.group_kills
    python -m tests.soak.group_kills --kills 20 --seed 7

Members without TensorFlow (tests/integration/collective). Fails if two members ever
differ, a step is left out, or a step that was acknowledged was not made.
"""

from __future__ import annotations

import argparse
import statistics

from tests.integration.collective.playing_master import kill_at_random

SIZES = {"1 MB": 250_000, "10 MB": 2_500_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="for each size")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name, size in SIZES.items():
        pauses = sorted(kill_at_random(size, args.kills, seed=args.seed))
        late = pauses[min(len(pauses) - 1, round(0.95 * (len(pauses) - 1)))]
        print(
            f"{name}: {len(pauses)} kills; longest pause between two steps of a member "
            f"that was left: median {statistics.median(pauses):.2f} s, "
            f"p95 {late:.2f} s, longest {pauses[-1]:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
