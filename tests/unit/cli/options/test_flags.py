"""Classic flags on the command line: spelling, mixing, and what is unknown."""

import argparse

import pytest
from elasticdl.cli.options import flags
from elasticdl.errors import SpecError
from elasticdl.job.spec.job import UpdateMode

BASE = ["--model_def", "digits.cnn.custom_model", "--training_data", "d"]


def parse(*arguments, verb="train"):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb")
    for name in ("train", "evaluate", "predict"):
        inner = verbs.add_parser(name, allow_abbrev=False)
        inner.add_argument("-f", "--file")
        inner.add_argument("--set", dest="overrides", action="append", default=[])
        flags.add_classic_flags(inner, name)
    verbs.add_parser("list")
    return flags.parse(parser, [verb, *arguments])


def values(*arguments):
    return flags.values_from_args(parse(*BASE, *arguments), "train")


def test_dashes_are_as_good_as_underscores():
    assert values("--num-workers", "3") == values("--num_workers=3")


def test_switches_may_stand_alone_or_with_a_value():
    assert values("--use_async", "--num_workers", "2").job.ps.mode is UpdateMode.ASYNC
    assert values("--use_async=false").job.ps.mode is UpdateMode.SYNC
    assert values("--use_async", "no").job.ps.mode is UpdateMode.SYNC


def test_negative_numbers_are_values():
    assert values("--num_epochs", "-1").job.training.epochs == 0


def test_overrides_are_laid_over_flags():
    assert values("--set", "worker.min=1").job.worker.min == 1
    with pytest.raises(SpecError, match=r"--set worker.min=9: job\.worker\.min: got 9"):
        values("--set", "worker.min=9")


def test_unknown_flags_are_never_ignored():
    with pytest.raises(SpecError) as raised:
        values("--num_wokers", "3", "--port", "x")
    text = str(raised.value)
    assert "--num_wokers: got an unknown flag" in text
    assert "did you mean `--num_workers`?" in text
    assert "--port: got 'x'" in text


def test_abbreviated_flags_are_unknown():
    with pytest.raises(SpecError, match="did you mean `--num_workers`"):
        values("--num_worker", "3")


def test_stray_words_are_refused():
    with pytest.raises(SpecError, match="stray words 'and more'"):
        values("and", "more")


def test_a_values_file_without_its_flag_is_told_how_it_is_named_and_nothing_else():
    with pytest.raises(SpecError) as raised:
        flags.values_from_args(parse("job.yaml"), "train")
    assert "elasticdl train -f job.yaml" in str(raised.value)
    assert "--model_def" not in str(raised.value)


def test_no_file_and_no_flags_say_what_to_give():
    with pytest.raises(SpecError, match="elasticdl train -f FILE"):
        flags.values_from_args(parse(), "train")


def test_flags_beside_a_file_are_refused_with_the_override_to_write():
    args = parse("-f", "f.yaml", "--num_workers", "3", "--yaml", "x", "--nonsense")
    with pytest.raises(SpecError) as raised:
        flags.refuse_beside_file(args)
    text = str(raised.value)
    assert "write --set job.worker.replicas=... instead" in text
    assert "--yaml: got a classic flag beside -f f.yaml" in text
    assert "--nonsense" in text
    flags.refuse_beside_file(parse("-f", "f.yaml"))


def test_a_verb_without_classic_flags_refuses_unknown_arguments(capsys):
    with pytest.raises(SystemExit):
        parse("--nonsense", verb="list")
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


def test_help_names_the_field_of_each_flag(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    out = capsys.readouterr().out
    assert "--num_workers" in out
    assert "job.worker.replicas" in out
    assert "--num-workers VALUE" not in out
    assert "--cluster_spec" not in out
