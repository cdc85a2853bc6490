"""What tests of whole SQL statements share: a table, and jobs that can be hurt."""

import importlib.util
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.data.making.employee import employees
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.plan import Generated
from elasticdl.sql.running.session import Answer, Session
from elasticdl.sql.running.statements import run
from elasticdl.testing.job import JobUnderTest


@dataclass
class Runner:
    """Runs a statement's job as `elasticdl` does; `meanwhile` may hurt it."""

    folder: Path
    meanwhile: Callable[[JobUnderTest], None] | None = None
    reports: list[JobReport] = field(default_factory=list)

    def __call__(self, values: ValuesFile) -> JobReport:
        options = ["--restart"]
        job = JobUnderTest(
            values,
            self.folder / "jobs",
            self.folder,
            str(values.job.type),
            options,
            limit_seconds=600.0,
        )
        with job:
            if self.meanwhile is not None:
                self.meanwhile(job)
            report = job.finish()
        self.reports.append(report)
        return report


def write_sqlite(path: Path, num_rows: int) -> None:
    columns = employees(num_rows, seed=1).columns
    types = [
        "INTEGER",
        "TEXT",
        "TEXT",
        "TEXT",
        "REAL",
        "REAL",
        "TEXT",
        "INTEGER",
        "TEXT",
    ]
    named = ", ".join(map(" ".join, zip(columns, types, strict=True)))
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE employee ({named})")
        marks = ", ".join("?" * len(columns))
        connection.executemany(
            f"INSERT INTO employee VALUES ({marks})",
            zip(*columns.values(), strict=True),
        )
        connection.execute(
            "CREATE TABLE odd AS SELECT NULL AS age, 'dropout' AS education, NULL AS "
            "occupation, 'nowhere' AS city, NULL AS hours, 1e6 AS capital_gain, NULL "
            "AS married, -1 AS lucky_number UNION ALL SELECT 30, NULL, 'pilot', NULL, "
            "40, NULL, 'true', NULL"
        )
    connection.close()


def run_all(session: Session, text: str) -> list[Answer]:
    return [answer for _, answers in run(session, text) for answer in answers]


def query(session: Session, text: str) -> tuple[tuple[object, ...], ...]:
    return session.source.execute(text, most_rows=100_000).rows


def loaded(made: Generated, folder: Path) -> Any:
    """Return a generated module, written into a folder and imported."""
    for name, text in {made.module_path: made.module, **made.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    name = f"generated_{Path(made.module_path).stem}"
    spec = importlib.util.spec_from_file_location(name, folder / made.module_path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
