"""Claims about disks that are full: what a job gave is not lost, and it is told."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.data.source import Source, open_source
from elasticdl.sql.remote.messages import Step
from elasticdl.sql.remote.steps import STEPS, work_folder
from elasticdl.sql.running.session import KeptError, Session
from elasticdl.sql.running.statements import run

from tests.unit.sql.ready import registry_in

_ROWS = 100_000
_LARGEST = 500_000  # Bytes of a file; the rows take more.
_SELECT = f"SELECT i AS x, md5(i::VARCHAR) AS t FROM range({_ROWS}) r(i)"
_SQLITE = (
    "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < "
    f"{_ROWS}) SELECT i AS x, hex(randomblob(16)) AS t FROM c"
)


@pytest.fixture
def fill() -> Iterator[Callable[[], None]]:
    """Give a call after which no file grows, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def empty() -> Callable[[], None]:
    """Give a call after which there is room again."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _answer(folder: str) -> None:
    """Write what a job writes."""
    outputs = Path(folder)
    outputs.mkdir(parents=True)
    for part, first in enumerate((50_000, 0)):
        records = list(range(first, first + 50_000))
        chances = pa.array([one / _ROWS for one in records], pa.float32())
        table = pa.table({"record": records, "prediction": chances})
        pq.write_table(table, outputs / f"part-{part}.parquet")


@dataclass(frozen=True)
class _Report:
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class _Job:
    """Answers as a job does; `behind` is what happens then."""

    behind: Callable[[], None]

    def __call__(self, values: ValuesFile) -> Any:
        _answer(values.job.prediction_output)
        self.behind()
        return _Report()


def _session(tmp_path: Path, behind: Callable[[], None], db: str = "") -> Session:
    work = tmp_path / "work"
    work.mkdir()
    return Session(
        open_source(db, folder=tmp_path),
        registry_in(tmp_path),
        _Job(behind),
        lambda _: None,
        work_dir=work,
    )


def _check_kept(source: Source, message: str) -> None:
    """The query that a message names has what the job said of each row."""
    query = message[message.index("FROM '") : message.rindex(")") + 1]
    found = source.execute(
        f"SELECT count(*), count(DISTINCT x), max(abs(prediction - x / {_ROWS})), "
        f"count_if(md5(x::BIGINT::VARCHAR) = t) FROM ({query})",
        most_rows=1,
    )
    ((number, different, most, same),) = found.rows
    assert (number, different, same) == (_ROWS, _ROWS, _ROWS)
    assert most < 1e-6


@pytest.mark.parametrize("place", ["p", ""])
def test_answers_stay_where_they_have_no_room_beside_their_rows(
    tmp_path: Path, fill: Callable[[], None], empty: Callable[[], None], place: str
) -> None:
    session = _session(tmp_path, fill)
    with pytest.raises(
        KeptError, match=r"predicted\.parquet: File too large"
    ) as caught:
        list(run(session, f"{_SELECT} TO PREDICT {place} USING m"))
    empty()
    told = str(caught.value)
    assert "\n" not in told
    assert "{" not in told
    _check_kept(session.source, told)
    (folder,) = (tmp_path / "work").iterdir()
    assert not (folder / "predicted.parquet").exists()
    session.source.close()


def test_answers_stay_where_neither_the_table_nor_the_registry_takes_them(
    tmp_path: Path,
) -> None:
    place = tmp_path / "gone" / "p.parquet"
    place.parent.mkdir()
    session = _session(tmp_path, place.parent.rmdir)
    (tmp_path / "models" / ".answers").write_text("in the way")
    with pytest.raises(KeptError, match="answers are kept in ") as caught:
        list(run(session, f"{_SELECT} TO PREDICT '{place}' USING m"))
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert pq.read_metadata(kept).num_rows == _ROWS
    session.source.close()


def test_nothing_else_stays_of_a_statement_that_fails(
    tmp_path: Path, fill: Callable[[], None]
) -> None:
    url = f"sqlite:///{tmp_path / 't.sqlite'}"
    session = _session(tmp_path, lambda: None, url)
    fill()
    with pytest.raises(DataError, match=r"rows\.parquet: File too large; make room"):
        list(run(session, f"{_SQLITE} TO PREDICT USING m"))
    assert not list((tmp_path / "work").iterdir())
    session.source.close()


def test_answers_stay_on_a_volume_without_room(
    tmp_path: Path, fill: Callable[[], None], empty: Callable[[], None]
) -> None:
    session = _session(tmp_path, lambda: None)
    models = str(tmp_path / "models")
    text = f"{_SELECT} TO PREDICT p USING m"
    step = Step("prepare", text, models, job="j", model="m@1")
    STEPS[step.do](step, session)
    _answer(f"{work_folder(models, 'j')}/outputs")
    fill()
    behind = replace(step, do="finish")
    with pytest.raises(KeptError) as caught:
        STEPS[behind.do](behind, session)
    empty()
    _check_kept(session.source, str(caught.value))
    STEPS[behind.do](behind, session)
    assert not Path(work_folder(models, "j")).exists()
    session.source.close()
