"""`elasticdl validate`: every file, every mistake, one exit code."""

import argparse
import os
from pathlib import Path

import pytest
from elasticdl.cli.files import validate
from elasticdl.errors import ExitCode

DIGITS = Path(__file__).parents[4] / "values" / "digits.yaml"


def run(*arguments):
    parser = argparse.ArgumentParser()
    validate.add_parser(parser.add_subparsers())
    args = parser.parse_args(["validate", *map(str, arguments)])
    args.environ = dict(os.environ)
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


JOB = (
    "kind: job\n"
    "job: {name: a, image: r/i:1, model: {definition: m.f}, data: {training: d"
)
OF_THE_CHART = {
    "two authorities": (
        "}}\ntls: {existingSecret: a, certManager: {issuer: b}}\n",
        "tls: got both existingSecret `a` and certManager.issuer `b`",
    ),
    "a label of the chart's own": (
        "}}\ncommonLabels: {helm.sh/chart: x}\n",
        "commonLabels: got `helm.sh/chart`, expected other labels than",
    ),
    "a second main container": (
        "}}\npods: {worker: {sidecars: [{name: main, image: x}]}}\n",
        "pods.worker.sidecars, pods.worker.initContainers: got two containers",
    ),
    "two volumes in one place": (
        "}, volumes: [{claimName: a, mountPath: /d}, {claimName: b, mountPath: /d}]}\n",
        "job.volumes: got two volumes on `/d`, expected one",
    ),
    "a section that holds nothing": ("}}\npods:\n", "`pods:` holds nothing"),
    "readers of metrics that are nobody": (
        "}}\nnetworkPolicy: {metricsFrom: null}\n",
        "`networkPolicy.metricsFrom:` holds nothing",
    ),
    "a command of no word": (
        ", prepare: {command: []}}}\n",
        "job.data.prepare",
    ),
}


@pytest.mark.parametrize(("text", "said"), OF_THE_CHART.values(), ids=OF_THE_CHART)
def test_what_the_chart_refuses_it_refuses_with_the_same_sentence(
    text, said, capsys, tmp_path
):
    file = tmp_path / "a.yaml"
    file.write_text(JOB + text)
    assert run(file) == ExitCode.SPEC
    (line, counted) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file}: ")
    assert said in line
    assert counted == "1 mistake in 1 file"


def test_a_job_of_this_machine_needs_no_chart_and_a_platform_may_have_the_registry(
    capsys, tmp_path
):
    file = tmp_path / "a.yaml"
    file.write_text(JOB.replace("image: r/i:1, ", "") + "}}\ntls: {enabled: false}\n")
    assert run(file) == ExitCode.OK
    parsed = capsys.readouterr()
    assert "ok (job a" in parsed.out
    assert not parsed.err
