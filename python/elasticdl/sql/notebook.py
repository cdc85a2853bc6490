"""SQL in Python: `elasticdl.sql("...")`, and the cell magic `%%elasticdl`.

Owns how a notebook's statements run and what they give back. Jobs run here, by
`client`, or in a cluster, by `remote.cluster`; their progress is printed a line at a
time. Must not know statements.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from elasticdl.errors import ElasticDLError, JobError, SpecError
from elasticdl.job import names
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.words import JobState
from elasticdl.sql.data.source import open_source
from elasticdl.sql.problems import in_one_line
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import (
    SHOWN_ROWS,
    Answer,
    Bars,
    Session,
    Table,
    Told,
)
from elasticdl.sql.running.statements import run as run_all

if TYPE_CHECKING:
    from elasticdl.client import JobView
    from elasticdl.sql.remote.cluster import Asked

_MODELS_DIR = "~/.elasticdl/models"
_JOBS_DIR = "~/.elasticdl/jobs"
_NO_EXPANSION = "_ipython_magic_no_var_expand"  # As IPython looks for it.
_RENDERED = "_render_traceback_"  # As IPython looks for it.
_OPTION = re.compile(r"\s*--?[a-z]")
_WAIT_SECONDS = 0.5
_TOLD_SECONDS = 5.0  # Between two lines of how far a job is.
_ALL_ROWS = 2**31 - 2  # As many as a driver can be asked for.


@dataclass(frozen=True)
class Answers:
    """What the statements of one text answered; the last table is its value."""

    answers: tuple[Answer, ...]

    @property
    def table(self) -> Table | None:
        """The last table, if there was one."""
        tables = [one for one in self.answers if isinstance(one, Table)]
        return tables[-1] if tables else None

    @property
    def more(self) -> bool:
        """Whether the last table has further rows; of a cluster come the first few."""
        return self.table is not None and self.table.more

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the last table's columns."""
        return self.table.names if self.table else ()

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The rows of the last table."""
        return self.table.rows if self.table else ()

    def __repr__(self) -> str:
        """Return all answers as text."""
        return "\n".join(_text(one) for one in self.answers)

    def _repr_html_(self) -> str:
        """Return all answers as a notebook shows them."""
        return "\n".join(_html(one) for one in self.answers)


def sql(  # noqa: PLR0913 - the options of `elasticdl sql`, each by its name
    statements: str,
    *,
    db: str | Path = "",
    models_dir: str | Path = "",
    jobs_dir: str | Path = "",
    overrides: Sequence[str] = (),
    namespace: str = "",
    context: str = "",
    secret: str = "",
    environ: Mapping[str, str] | None = None,
) -> Answers:
    """Run statements as `elasticdl sql` does, and return what they answer.

    Args:
        statements: One or several, with semicolons between them.
        db: Where the tables are, as `--db`; $ELASTICDL_SQL_URL without it.
        models_dir: The registry; $ELASTICDL_MODELS_DIR or ~/.elasticdl/models.
        jobs_dir: Folders of jobs; $ELASTICDL_JOBS_DIR or ~/.elasticdl/jobs.
        overrides: `job.path=value`, as `--set`.
        namespace: Statements run in a cluster, in this namespace, as with `-n`.
        context: Of the kubeconfig, as `--context`; also means a cluster.
        secret: The Secret with $ELASTICDL_SQL_URL for the job's pods, as `--secret`.
        environ: Stands for the process's environment.
    """
    if not isinstance(db, str | Path):
        raise SpecError(
            f"db: got a {type(db).__name__}, expected a URL or a file; write what lies "
            "in memory to one: frame.to_parquet('t.parquet'), then FROM 't.parquet'"
        )
    db = str(db)
    # A notebook has no main of ours that could read it.
    given = dict(os.environ if environ is None else environ)  # noqa: TID251
    if namespace or context:
        from elasticdl.sql.remote.cluster import Asked

        if jobs_dir:
            raise SpecError("jobs_dir: got it beside a cluster; leave one of them out")
        asked = Asked(
            namespace, context, secret, db, str(models_dir), None, tuple(overrides)
        )
        return _answered(_there(asked, given), statements)
    if secret:
        raise SpecError("secret: got one without a namespace; expected both, or none")
    models = models_dir or given.get(names.ENV_MODELS_DIR, "") or _MODELS_DIR
    jobs = jobs_dir or given.get("ELASTICDL_JOBS_DIR", "") or _JOBS_DIR
    source = open_source(db or given.get(names.ENV_SQL_URL, ""))
    # A job's processes need no password of the source.
    inherited = {k: v for k, v in given.items() if k != names.ENV_SQL_URL}

    def run_job(values: ValuesFile) -> JobReport:
        return _run_here(values, inherited, _folder(jobs))

    try:
        session = Session(
            source,
            Registry(_folder(models)),
            run_job,
            _say,
            overrides=overrides,
            most_rows=_ALL_ROWS,
        )
        return _answered(session, statements)
    finally:
        source.close()


def _answered(session: Session, statements: str) -> Answers:
    found: list[Answer] = []
    try:
        for _, answers in run_all(session, statements):
            found += answers
    except BaseException:
        # A job may have run for them, and nothing is returned.
        for one in found:
            _say(_text(one))
        raise
    return Answers(tuple(found))


def _there(asked: Asked, environ: Mapping[str, str]) -> Session:
    """Return a session whose statements run in a cluster."""
    from elasticdl.sql.remote.cluster import connected

    remote = connected(asked, environ, say=_say, state_of=_state_of)
    return Session(
        remote,
        Registry(Path(remote.models)),
        remote.place.run_job,
        _say,
        elsewhere=remote,
    )


def _state_of(view: JobView) -> str:
    status = view.status
    if status is None:
        return f"{view.condition}: {view.note}" if view.note else str(view.condition)
    return str(status.state)


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext elasticdl.sql.notebook` gives `%%elasticdl [--db URL] [-n NS]`."""

    def elasticdl(line: str, cell: str | None = None) -> Answers:
        # The options may have `{url}` of the notebook, a statement's text is its own.
        try:
            return magic(line if cell is None else ipython.var_expand(line), cell)
        except ElasticDLError as error:
            # IPython asks for it: the user's mistake, not our calls.
            shown = [f"error: {error}"]
            setattr(error, _RENDERED, lambda: shown)
            raise

    setattr(elasticdl, _NO_EXPANSION, True)
    ipython.register_magic_function(elasticdl, "line_cell", "elasticdl")


class _Line(argparse.ArgumentParser):
    """The options behind a magic's name; a mistake ends no notebook."""

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split()[1:])
        raise SpecError(f"%%elasticdl: {message}; expected {usage}")


def magic(line: str, cell: str | None = None) -> Answers:
    """Run a cell's statements; a line alone is a statement itself."""
    if cell is None:
        if _OPTION.match(line):  # The engine would take it for a comment.
            raise SpecError(
                f"%elasticdl {line.strip()}: got options on the line of a statement; "
                "write them behind %%elasticdl, and the statement below"
            )
        return sql(line)
    parser = _Line("%%elasticdl", add_help=False, allow_abbrev=False)
    parser.add_argument("--db", default="")
    parser.add_argument("--models-dir", default="")
    parser.add_argument("--jobs-dir", default="")
    parser.add_argument("-n", "--namespace", default="")
    parser.add_argument("--context", default="")
    parser.add_argument("--secret", default="")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SpecError(f"%%elasticdl {line}: {error}") from error
    args = parser.parse_args(words)
    return sql(
        cell,
        db=args.db,
        models_dir=args.models_dir,
        jobs_dir=args.jobs_dir,
        overrides=args.overrides,
        namespace=args.namespace,
        context=args.context,
        secret=args.secret,
    )


def _folder(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _run_here(values: ValuesFile, environ: dict[str, str], jobs: Path) -> JobReport:
    """Run a job to its end. Raises JobError unless it succeeded."""
    from elasticdl import client

    launcher = client.launch(
        values, environ=environ, jobs_dir=jobs, restart=True, free_name=True
    )
    told, last = time.monotonic(), ""
    try:
        while (outcome := launcher.wait(_WAIT_SECONDS)) is None:
            for notice in launcher.take_notices():
                _say(str(notice))
            line = _progress(launcher.status)
            if line != last and time.monotonic() - told >= _TOLD_SECONDS:
                told, last = time.monotonic(), line
                _say(line)
    except KeyboardInterrupt:
        launcher.stop("stopped in the notebook")
        while launcher.wait(_WAIT_SECONDS) is None:
            pass
        raise
    report = outcome.report
    if report is not None and report.status == JobState.SUCCEEDED:
        return report
    why = in_one_line(report.message if report is not None else outcome.message)
    logs = launcher.job_dir.logs_dir
    name = launcher.spec.name
    raise JobError(f"job {name} did not succeed: {why} (logs: {logs})")


def _progress(status: JobStatus | None) -> str:
    """Return in a line how far a job is."""
    if status is None:
        return "starting"
    progress = status.progress
    total = progress.records_per_epoch * progress.epochs
    parts = [str(status.state)]
    if progress.records_done and total:
        parts.append(f"{progress.records_done / total:.0%} of the records")
    if progress.steps:
        parts.append(f"step {progress.steps:,}")
    if status.last_loss is not None:
        parts.append(f"loss {status.last_loss:.4g}")
    return ", ".join(parts)


def _text(answer: Answer) -> str:
    match answer:
        case Told(lines):
            return "\n".join(lines)
        case Bars(title, values):
            return "\n".join([title, *(f"{name}: {v:.4g}" for name, v in values)])
        case Table(columns, rows, more):
            texts = [[_cell(value) for value in row] for row in rows[:SHOWN_ROWS]]
            shown = ["\t".join(row) for row in [list(columns), *texts]]
            cut = more or len(rows) > SHOWN_ROWS
            return "\n".join([*shown, "..."] if cut else shown)


def _html(answer: Answer) -> str:
    match answer:
        case Told(lines):
            return f"<pre>{html.escape(chr(10).join(lines))}</pre>"
        case Bars(title, values):
            most = max((abs(value) for _, value in values), default=0.0) or 1.0
            rows = "".join(
                f"<tr><td>{html.escape(name)}</td><td>{value:.4g}</td><td><div style='"
                f"background:#4c78a8;height:1em;width:{200 * abs(value) / most:.0f}px'>"
                "</div></td></tr>"
                for name, value in values
            )
            return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"
        case Table(columns, cells, more):
            head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
            body = "".join(
                "<tr>"
                + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row)
                + "</tr>"
                for row in cells[:SHOWN_ROWS]
            )
            cut = more or len(cells) > SHOWN_ROWS
            end = "<p>there are further rows</p>" if cut else ""
            return f"<table><tr>{head}</tr>{body}</table>{end}"


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(value)
