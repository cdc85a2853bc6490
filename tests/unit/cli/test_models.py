"""`elasticdl models`: here and in a cluster."""

from __future__ import annotations

import pytest
from elasticdl.cli.main import main, make_parser
from elasticdl.errors import ExitCode


def test_a_model_of_a_cluster_is_not_exported_but_said_how(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["models", "export", "income", "serving", "-n", "ml"])
    assert code == ExitCode.SPEC
    said = capsys.readouterr().err
    assert "`elasticdl models show income` with the same options says" in said
    assert "kubectl cp" in said


def test_options_of_pods_are_none_of_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "list", "--set", "images.tag=1"]) == ExitCode.SPEC
    assert "got them without a cluster" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["list"], ["show", "m@2"], ["drop", "m"]])
def test_models_of_a_cluster_are_asked_as_its_statements_are(words: list[str]) -> None:
    options = ["-n", "ml", "--models-dir", "shop", "--set", "images.tag=1"]
    args = make_parser().parse_args(["models", *words, *options])
    assert (args.namespace, args.overrides) == ("ml", ["images.tag=1"])
