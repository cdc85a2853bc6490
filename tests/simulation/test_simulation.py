"""The protocol under 650 seeds of faults, each of which repeats exactly.

`make soak` runs 24,000 of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
FIRST = ("--most-failures", "1")  # it ends at the first


def simulate(*arguments):
    """Run the simulation in a process of its own: it replaces the standard library."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(2400)
def test_nothing_is_lost_and_every_job_ends_under_500_seeds_of_faults():
    code, told = simulate("--seeds", "0:500")
    assert code == 0, told


@pytest.mark.timeout(1200)
def test_a_worker_that_has_the_parameters_loses_nothing_under_150_seeds_of_faults():
    code, told = simulate("--local", "--seeds", "0:150")
    assert code == 0, told


def test_a_seed_repeats_exactly():
    code, told = simulate("--seeds", "0:4", "--twice")
    assert code == 0, told
    code, told = simulate("--local", "--seeds", "0:2", "--twice")
    assert code == 0, told


def test_a_seed_whose_records_are_lost_is_printed():
    code, told = simulate("--seeds", "16", "--lose-a-record")
    assert code == 1
    assert "1 records are missing" in told
    assert "failed: 16" in told


def test_a_job_whose_pushes_pass_for_those_of_the_job_before_it_is_printed():
    # Which seeds meet it changes with every message that the protocol gains or loses;
    # one in six does.
    code, told = simulate("--seeds", "0:60", "--ids-of-before", *FIRST)
    assert code == 1
    assert "records are missing" in told
    assert "failed: " in told


def test_a_best_model_of_another_step_than_was_measured_is_printed():
    code, told = simulate("--local", "--seeds", "0:30", "--trains-on", *FIRST)
    assert code == 1
    assert "the best model has " in told
