"""The report's page: what it says, and that nothing in it can run."""

from __future__ import annotations

from datetime import UTC

import pytest
from elasticdl.client import Condition, JobView
from elasticdl.job.decision import Decision
from elasticdl.job.history import History
from elasticdl.job.words import JobState
from elasticdl.views.report.page import Subject, report_page

from tests.reading import Reading
from tests.recorded import STARTED, ended_view, recorded_history, running_view

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def read(view: JobView, history: History) -> Reading:
    return Reading(report_page(Subject(view, history, STARTED + 400, UTC)))


@pytest.fixture(scope="module")
def history() -> History:
    return recorded_history()


def test_the_head_has_state_message_and_key_figures(history: History) -> None:
    page = read(ended_view(history, message="all is well"), history)
    for words in ("digits", "succeeded", "all is well", "goodput", "79 %", "took"):
        assert words in page.text, words


def test_each_change_is_a_row_with_cause_and_cost(history: History) -> None:
    page = read(ended_view(history), history)
    for words in ("worker-1 → worker-4", "preempted", "56 s", "new master"):
        assert words in page.text, words


def test_a_running_job_shows_what_is_left() -> None:
    history = recorded_history(until=120)
    page = read(running_view(history), history)
    for words in ("running for", "done in", "of 4 wanted"):
        assert words in page.text, words


def test_a_job_without_history_still_has_its_relaunches(history: History) -> None:
    page = read(ended_view(history), History())
    assert "There is no history of this job" in page.text
    assert "worker-1 → worker-4" in page.text
    assert (
        "plot" in dict(page.attributes).values() or "Evaluation: accuracy" in page.text
    )


def test_a_job_that_left_nothing_has_a_page(history: History) -> None:
    view = JobView("digits", Condition.INTERRUPTED, note="its launcher is gone")
    page = read(view, History())
    assert "interrupted" in page.text
    assert "its launcher is gone" in page.text


def test_the_file_needs_nothing_else_and_is_small_enough_to_send(
    history: History,
) -> None:
    text = report_page(Subject(ended_view(history), history, STARTED + 400, UTC))
    page = Reading(text)
    assert not [value for name, value in page.attributes if name == "src"]
    links = [value for name, value in page.attributes if name == "href"]
    assert links == ["data:,"]
    assert len(text) < 5_000_000


def test_hostile_names_and_messages_are_text(history: History) -> None:
    decision = Decision(
        time=STARTED + 5, kind="ended", replica=HOSTILE, cause=HOSTILE, text=HOSTILE
    )
    hostile = History(
        history.samples, [*history.decisions, decision], history.evaluations
    )
    clean = read(ended_view(history, message="x"), history)
    page = read(
        ended_view(hostile, name=HOSTILE, message=HOSTILE, status=JobState.FAILED),
        hostile,
    )
    assert page.text.count(HOSTILE) >= 4  # head, message, table
    assert "img" not in page.elements
    assert page.elements.count("script") == clean.elements.count("script")
    assert not [name for name, _ in page.attributes if name.startswith("on")]
