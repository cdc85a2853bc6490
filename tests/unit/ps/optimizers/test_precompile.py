"""An image is built with every kernel that a PS can need."""

import os
import subprocess
import sys

PROGRAM = """
from elasticdl.ps.optimizers import kernels, precompile, update_kernels
precompile.run()
for module in (kernels, update_kernels):
    for name, function in vars(module).items():
        if hasattr(function, "stats"):
            hits = sum(function.stats.cache_hits.values())
            print(name, hits, sum(function.stats.cache_misses.values()))
"""


def test_what_was_compiled_once_is_found_by_the_next_process(tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=env,
            check=True,
            capture_output=True,
            text=True,
        )
    functions = [line.split() for line in done.stdout.splitlines()]
    assert len(functions) > 20
    assert all(int(hits) > 0 and int(misses) == 0 for _, hits, misses in functions)
