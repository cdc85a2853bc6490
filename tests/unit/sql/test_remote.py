"""Claims about statements in a cluster that cannot be seen for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from elasticdl.client.cluster.api import ClusterError
from elasticdl.errors import ElasticDLError, JobError
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import Registry
from elasticdl.sql.remote.flow import Remote
from elasticdl.sql.remote.messages import read_step
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import run


@dataclass
class _Place:
    """A cluster whose job ends with an error; `steps` are what was done beside it."""

    error: ElasticDLError
    steps: list[str] = field(default_factory=list)

    def run_job(self, values: ValuesFile) -> JobReport:
        raise type(self.error)(f"job {values.job.name}: {self.error}")

    def run_step(
        self, values: ValuesFile, words: Sequence[str], *, patient: bool = False
    ) -> str:
        del values, patient
        self.steps.append(read_step(words[2], words[3]).do)
        return ""


@pytest.mark.parametrize(
    ("error", "steps"),
    [(JobError("it failed"), ["discard"]), (ClusterError("no answer"), [])],
)
def test_the_rows_of_a_job_that_is_out_of_sight_are_left_alone(
    tmp_path: Path, error: ElasticDLError, steps: list[str]
) -> None:
    """A moment without an answer removed the model's folder under a job that ran."""
    place = _Place(error)
    remote = Remote(place, "duckdb")
    registry = Registry(tmp_path)
    session = Session(remote, registry, place.run_job, print, elsewhere=remote)
    with pytest.raises(type(error), match=str(error)):
        list(run(session, "SELECT * FROM t LABEL y INTO m"))
    assert place.steps == steps


def _assert_refused(folder: Path, text: str, match: str) -> None:
    """Assert that statements for a cluster are refused before anything is done."""
    place = _Place(JobError("it failed"))
    remote = Remote(place, "postgresql")
    session = Session(remote, Registry(folder), place.run_job, print, elsewhere=remote)
    with pytest.raises(StatementError, match=match):
        list(run(session, text))
    assert not place.steps


@pytest.mark.parametrize(
    "begin", ["BEGIN", "start  transaction", "BEGIN IMMEDIATE", "BEGIN -- now\n WORK"]
)
def test_what_could_not_be_rolled_back_is_told_before_it_is_done(
    tmp_path: Path, begin: str
) -> None:
    """Each statement has a pod: what ROLLBACK was to take back was kept."""
    text = f"{begin}; DELETE FROM t; ROLLBACK"
    _assert_refused(tmp_path, text, "nothing could be rolled back")


@pytest.mark.parametrize(
    "setting", ["USE mart", "SET search_path TO mart", "RESET ALL"]
)
def test_what_is_set_for_a_session_is_refused_where_none_lasts(
    tmp_path: Path, setting: str
) -> None:
    """The next statement read the table of that name in another schema."""
    text = f"{setting}; SELECT * FROM t LABEL y INTO m"
    _assert_refused(tmp_path, text, "not set in the next one")
