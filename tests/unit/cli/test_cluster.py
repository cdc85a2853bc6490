"""`elasticdl plan FILE` and `elasticdl cluster`: what is wrong with their arguments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from elasticdl.cli.main import main
from elasticdl.client.cluster.planning import SavedView, save
from elasticdl.errors import ExitCode
from elasticdl.views.terminal.cluster import COLUMNS, csv_row

from tests.unit.planner.build import FULL, NOW, cluster, job, node, workers
from tests.unit.planner.build import made as planned


@pytest.fixture
def view(tmp_path: Path) -> Path:
    file = tmp_path / "view.json"
    one = job("a", 1, 9, 1)
    save(SavedView(NOW, cluster(node("n", 4), one, workers(one, n=1)), FULL), file)
    return file


def test_a_saved_view_is_planned_again(
    view: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(view), "--json"]) == ExitCode.OK
    (made,) = json.loads(capsys.readouterr().out)["jobs"]
    assert made["planned"] == 4


def test_a_view_that_no_plan_can_be_made_of_is_refused_in_a_sentence(
    view: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = json.loads(view.read_text())
    tree["view"]["jobs"][0]["weight"] = 0
    view.write_text(json.dumps(tree))
    assert main(["plan", str(view)]) == ExitCode.SPEC
    assert "no plan can be made of this view" in capsys.readouterr().err


def test_jobs_of_one_name_are_told_apart_in_a_line_of_a_csv() -> None:
    ours, theirs, other = job("a", 1, 2, 1), job("a", 1, 2, 1), job("b", 1, 2, 1)
    view = cluster(node("n", 3), ours, replace(theirs, namespace="ops"), other)
    row = dict(zip(COLUMNS, csv_row(planned(view), clock=""), strict=True))
    assert row["GRANTED-TRAINERS"] == "ml/a:1|b:1|ops/a:1"


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "0", "1e20"])
def test_a_pause_that_nobody_can_wait_is_refused(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["cluster", "--watch", "--every", seconds]
    assert main(line) == ExitCode.SPEC
    assert "--every: got" in capsys.readouterr().err
