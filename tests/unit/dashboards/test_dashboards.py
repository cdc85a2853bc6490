"""The committed dashboards: their form, their layout, and what they ask for."""

import itertools
import json
import re
from pathlib import Path

import jsonschema
import pytest
from elasticdl.dashboards.board import Board, GridPlace, Panel, PanelKind, Row, places
from elasticdl.metrics.registry import ROLES

from docs.generate.questions import QUESTIONS

ROOT = Path(__file__).parents[3]
FILES = {file.stem: file for file in sorted((ROOT / "dashboards").glob("*.json"))}
DASHBOARDS = {name: json.loads(file.read_text()) for name, file in FILES.items()}
SCHEMA = json.loads(Path(__file__).with_name("schema.json").read_text())
DECLARED = {one.name: one for role in ROLES.values() for one in role().declared}

each = pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board):
    """Return all queries: of panels, annotations and variables."""
    found = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    found += [one["expr"] for one in board["annotations"]["list"]]
    found += [one["query"]["query"] for one in board["templating"]["list"][1:]]
    return found


def test_these_dashboards_are_there():
    assert list(FILES) == ["cluster", "group", "job", "ps"]


@each
def test_a_dashboard_has_the_form_that_is_used(board):
    checker = jsonschema.Draft202012Validator(SCHEMA)
    assert [error.message for error in checker.iter_errors(board)] == []


@each
def test_numbers_of_panels_are_unique(board):
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


@each
def test_titles_of_panels_are_unique(board):
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)


def test_uids_and_titles_are_unique():
    for key in ("uid", "title"):
        assert len({board[key] for board in DASHBOARDS.values()}) == len(DASHBOARDS)


def cells(panel):
    at = panel["gridPos"]
    columns = range(at["x"], at["x"] + at["w"])
    return set(itertools.product(columns, range(at["y"], at["y"] + at["h"])))


@each
def test_no_panel_lies_on_another_or_outside_of_the_grid(board):
    taken = set()
    for panel in board["panels"]:
        covered = cells(panel)
        assert not covered & taken, panel["title"]
        assert max(x for x, _ in covered) < 24, panel["title"]
        taken |= covered


@each
def test_each_line_of_panels_fills_the_width(board):
    widths = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        widths[at["y"]] = widths.get(at["y"], 0) + at["w"]
    assert set(widths.values()) == {24}


@each
def test_each_query_has_a_letter_of_its_own(board):
    for panel in panels(board):
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), panel["title"]


@each
def test_each_query_asks_for_metrics_that_exist(board):
    known = set(DECLARED)
    for one in DECLARED.values():
        if one.kind in ("histogram", "summary"):
            known |= {f"{one.name}_{part}" for part in ("sum", "count")}
        if one.kind == "histogram":
            known.add(f"{one.name}_bucket")
    for expression in expressions(board):
        asked = set(re.findall(r"elasticdl_\w+", expression))
        assert asked, expression
        assert asked <= known, asked - known


def test_buckets_are_kept_where_a_panel_draws_them_and_nowhere_else():
    drawn = {
        name
        for board in DASHBOARDS.values()
        for expression in expressions(board)
        for name in re.findall(r"(elasticdl_\w+)_bucket", expression)
    }
    assert drawn == {o.name for o in DECLARED.values() if o.kind == "histogram"}


@each
def test_each_query_names_labels_that_its_metrics_have(board):
    of_targets = {"cluster", "namespace", "training_job", "role", "index"}
    for expression in expressions(board):
        asked = re.findall(r"(elasticdl_\w+)\{([^}]*)\}", expression)
        for name, matchers in asked:
            one = (
                DECLARED.get(name)
                or DECLARED[re.sub(r"_(sum|count|bucket)$", "", name)]
            )
            labels = set(re.findall(r"(\w+)=~?", matchers))
            assert labels <= {*one.labels, *of_targets}, expression


@each
def test_each_query_is_about_the_jobs_that_are_chosen_or_the_whole_cluster(board):
    for expression in expressions(board)[: -len(board["templating"]["list"][1:])]:
        for name, matchers in re.findall(r"(elasticdl_\w+)(\{[^}]*\})?", expression):
            assert 'cluster=~"$cluster"' in matchers, expression
            if name.startswith(("elasticdl_cluster_", "elasticdl_controller_")):
                continue
            equals = "=~" if board["uid"] == "elasticdl-cluster" else "="
            assert f'namespace{equals}"$namespace"' in matchers, expression
            assert f'training_job{equals}"$job"' in matchers, expression


@each
def test_counters_are_shown_as_rates_unless_the_title_says_how_far(board):
    for panel in panels(board):
        for target in panel["targets"]:
            for name in re.findall(r"elasticdl_\w+_total", target["expr"]):
                if f"rate({name}" not in target["expr"]:
                    words = f"{panel['title']} {panel['description']}"
                    assert re.search(r"so far|given out again|began", words), words


def test_each_question_has_one_panel():
    titles = {
        (board["uid"], panel["title"])
        for board in DASHBOARDS.values()
        for panel in panels(board)
    }
    assert len(QUESTIONS) == 10
    for question in QUESTIONS:
        assert (question.dashboard, question.panel) in titles, question.text


def test_the_folder_to_import_from_is_the_charts():
    chart = ROOT / "charts" / "elasticdl" / "files" / "dashboards"
    assert (ROOT / "dashboards").resolve() == chart.resolve()
    assert not any(path.is_symlink() for path in [chart, *chart.iterdir()])


def panel_of(width, height):
    return Panel("p", PanelKind.STAT, "A panel.", width=width, height=height)


def test_panels_stand_side_by_side_and_go_down_when_a_line_is_full():
    wide, low, high = panel_of(16, 4), panel_of(8, 4), panel_of(12, 8)
    rows = (Row("first", (wide, low, high)), Row("second", (low,)))
    board = Board("u", "t", "d", rows)
    assert list(places(board)) == [
        GridPlace(1, rows[0], 0, 0, 24, 1),
        GridPlace(2, wide, 0, 1, 16, 4),
        GridPlace(3, low, 16, 1, 8, 4),
        GridPlace(4, high, 0, 5, 12, 8),
        GridPlace(5, rows[1], 0, 13, 24, 1),
        GridPlace(6, low, 0, 14, 8, 4),
    ]
