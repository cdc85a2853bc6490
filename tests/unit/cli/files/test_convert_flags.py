"""`elasticdl convert-flags`: a classic command line becomes a values file."""

import argparse
import io

import pytest
from elasticdl.cli.files import convert_flags
from elasticdl.cli.main import main
from elasticdl.errors import SpecError
from elasticdl.job.classic_flags.convert import GivenFlag, values_from_flags
from elasticdl.job.spec.job import JobType
from elasticdl.job.values.file import parse_values

TUTORIAL = """\
elasticdl train \\
  --image_name=elasticdl:ci \\
  --model_zoo=model_zoo \\
  --model_def=mnist.mnist_functional_api.custom_model \\
  --training_data=/data/mnist/train \\
  --validation_data=/data/mnist/test \\
  --num_epochs=5 \\
  --master_resource_request="cpu=0.1,memory=1024Mi" \\
  --master_resource_limit="cpu=1,memory=2048Mi" \\
  --master_pod_priority=high \\
  --worker_resource_request="cpu=0.4,memory=2048Mi" \\
  --worker_resource_limit="cpu=1,memory=3072Mi" \\
  --worker_pod_priority=0.5 \\
  --ps_resource_request="cpu=0.2,memory=1024Mi" \\
  --ps_resource_limit="cpu=1,memory=2048Mi" \\
  --ps_pod_priority=high \\
  --minibatch_size=64 \\
  --num_minibatches_per_task=64 \\
  --num_ps_pods=2 \\
  --num_workers=4 \\
  --evaluation_steps=200 \\
  --grads_to_wait=1 \\
  --job_name=test-mnist \\
  --log_level=INFO \\
  --image_pull_policy=Never \\
  --volume="claim_name=fileserver-claim,mount_path=/data" \\
  --distribution_strategy=ParameterServerStrategy
"""


def run(*words):
    parser = argparse.ArgumentParser()
    convert_flags.add_parser(parser.add_subparsers())
    args = parser.parse_args(["convert-flags", *words])
    return args.handler(args)


def test_the_tutorials_command_becomes_a_valid_file_of_the_same_job():
    text = convert_flags.convert_command(convert_flags.split_command(TUTORIAL))
    values, problems = parse_values(text, source="f")
    assert problems == []
    words = convert_flags.split_command(TUTORIAL)[2:]
    pairs = [word.removeprefix("--").split("=", 1) for word in words]
    given = [GivenFlag(name, value) for name, value in pairs]
    assert values == values_from_flags(given, JobType.TRAIN).values
    assert values.job.worker.limits.memory == "3072Mi"
    assert "the share of workers that is `high`" in text


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--model_def", "a.b", "--training_data", "d"),
        ("elasticdl", "train", "--model_def", "a.b", "--training_data", "d"),
        ("train --model_def a.b --training_data d",),
    ],
)
def test_the_command_may_be_words_or_one_text(capsys, words):
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "name: a  # made of --model_def" in out
    assert out.startswith("# Made of classic flags")


def test_flags_without_a_command_are_those_of_train(capsys):
    flags = ["--model_def", "net.build", "--training_data", "data/train"]
    main(["convert-flags", *flags])
    alone = capsys.readouterr().out
    main(["convert-flags", "train", *flags])
    assert alone == capsys.readouterr().out != ""


def test_the_command_may_come_from_standard_input(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(TUTORIAL))
    assert run("-") == 0
    assert "name: test-mnist" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "got nothing, expected a classic"),
        (("traim", "--num_workers", "1"), "did you mean `train`?"),
        (("zoo", "init"), "got a command that makes images"),
        (("train 'unclosed",), "cannot be read"),
        (("train", "--num_workers"), "expected one argument"),
        (("train", "--cluster_spec", "x"), "pods are patched by the chart's values"),
        (("train", "--nonsense", "--num_workers", "x"), "--num_workers: got 'x'"),
    ],
)
def test_what_is_no_classic_command_line_is_refused(words, part):
    with pytest.raises(SpecError) as raised:
        run(*words)
    assert part in str(raised.value)
