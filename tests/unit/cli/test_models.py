"""`elasticdl models`: here and in a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.cli.main import main, make_parser
from elasticdl.errors import ExitCode
from elasticdl.sql.plan import Head, Kind, LabelPlan, Schema
from elasticdl.sql.registry import Description, Registry, write_description


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


def test_an_export_is_whole_or_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was copied of one that failed looked like a model."""
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY)
    with Registry(tmp_path / "models").adding("m") as version:
        version.export_dir.mkdir()
        (version.export_dir / "a.keras").touch()
        (version.export_dir / "b").symlink_to("what is gone")
        write_description(version, Description((), label, Schema(()), "x"))
    place = tmp_path / "serving" / "m"
    words = ["models", "export", "m", str(place), "--models-dir"]
    assert main([*words, str(tmp_path / "models")]) == ExitCode.JOB_FAILED
    assert "cannot be copied" in capsys.readouterr().err
    assert list(place.parent.iterdir()) == []
    (version.export_dir / "b").unlink()
    assert main([*words, str(tmp_path / "models")]) == ExitCode.OK
    assert [one.name for one in place.iterdir()] == ["a.keras"]
