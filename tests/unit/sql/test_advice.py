"""Claims about what a statement's user is told of a job that failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from elasticdl.errors import DataError, JobError
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.data.source import open_source
from elasticdl.sql.remote.flow import Remote
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import run
from elasticdl.worker.uses.prediction_files import PredictionFiles, format_named

from tests.unit.sql.ready import registry_in


class Full:
    """A place whose jobs and pods have no room for what they write."""

    def __init__(self, folder: Path) -> None:
        (folder / "file").write_text("in the way")
        self._files = PredictionFiles(folder / "file", format_named("parquet"))

    def run_job(self, values: ValuesFile) -> NoReturn:
        try:
            self._files.write(1, {"prediction": [1.0]})
        except DataError as error:
            message = f"job {values.job.name} did not succeed: {error}"
            raise JobError(message) from error
        raise AssertionError("it has no room")

    def run_step(self, values: ValuesFile, words: Sequence[str]) -> NoReturn:
        del words
        self.run_job(values)


def test_a_full_disk_is_told_with_what_a_statement_can_do(tmp_path: Path) -> None:
    """It said to set a field that statements refuse."""
    registry = registry_in(tmp_path)
    place = Full(tmp_path)
    source = open_source("", folder=tmp_path)
    here = Session(source, registry, place.run_job, lambda _: None)
    remote = Remote(place, "duckdb")
    there = Session(remote, registry, place.run_job, lambda _: None, elsewhere=remote)
    for session, advice in (
        (here, "make room or set TMPDIR to a folder of a larger disk"),
        (there, "make room or enlarge the job's volume"),
    ):
        with pytest.raises(JobError, match=advice) as caught:
            list(run(session, "SELECT 1 AS x TO PREDICT USING m"))
        assert "predictionOutput" not in str(caught.value)
    source.close()
