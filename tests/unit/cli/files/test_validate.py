"""`elasticdl validate`: every file, every mistake, one exit code."""

import argparse
from pathlib import Path

from elasticdl.cli.files import validate
from elasticdl.errors import ExitCode

DIGITS = Path(__file__).parents[4] / "values" / "digits.yaml"


def run(*arguments):
    parser = argparse.ArgumentParser()
    validate.add_parser(parser.add_subparsers())
    args = parser.parse_args(["validate", *map(str, arguments)])
    return args.handler(args)


def test_a_good_file_is_told_in_a_line(capsys):
    assert run(DIGITS) == ExitCode.OK
    out = capsys.readouterr().out
    assert out == f"{DIGITS}: ok (job digits: train, 2 PS, 3 workers)\n"


def test_a_local_job_has_no_ps(capsys):
    assert run(DIGITS.parent / "digits-local.yaml") == ExitCode.OK
    assert "train, no PS, 1 worker)" in capsys.readouterr().out


def test_a_group_of_workers_has_no_ps(capsys):
    assert run(DIGITS.parent / "digits-allreduce.yaml") == ExitCode.OK
    assert "train, no PS, 3 workers)" in capsys.readouterr().out


def test_all_mistakes_of_all_files_are_shown_and_the_good_ones_too(capsys, tmp_path):
    one = tmp_path / "one.yaml"
    one.write_text("kind: job\njob: {name: A, model: {definition: a.b}}\n")
    assert run(one, DIGITS, tmp_path / "none.yaml") == ExitCode.SPEC
    out, err = capsys.readouterr()
    assert "digits.yaml: ok" in out
    assert "one.yaml:2:13: job.name: got 'A'" in err
    assert "job.data.training: got nothing" in err
    assert "none.yaml: got no such file" in err
    assert err.endswith("3 mistakes in 2 files\n")


def test_one_mistake_is_counted_in_the_singular(capsys, tmp_path):
    assert run(tmp_path / "none.yaml") == ExitCode.SPEC
    assert capsys.readouterr().err.endswith("1 mistake in 1 file\n")


def test_overrides_are_checked_with_the_file(capsys):
    assert run(DIGITS, "--set", "worker.replicas=1") == ExitCode.OK
    assert "1 worker)" in capsys.readouterr().out
    assert run(DIGITS, "--set", "worker.replicas=x") == ExitCode.SPEC
    assert "--set worker.replicas=x: job.worker.replicas" in capsys.readouterr().err
