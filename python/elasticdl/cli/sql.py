"""`elasticdl sql`: statements from the command line, a file, a pipe or a prompt.

Owns the verb's arguments, how a statement's job is shown, and the way answers are
printed. What statements do is in `elasticdl.sql`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli import sql_cluster
from elasticdl.cli.options.arguments import Verbs, add_jobs_dir, add_overrides, add_verb
from elasticdl.cli.options.where import is_cluster_asked
from elasticdl.errors import ElasticDLError, ExitCode, JobError, SpecError
from elasticdl.job import names

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console

    from elasticdl.job.status import JobReport
    from elasticdl.job.values.document import ValuesFile
    from elasticdl.sql.data.source import Source
    from elasticdl.sql.remote.flow import Remote
    from elasticdl.sql.running.session import Answer, Session

DEFAULT_MODELS_DIR = "~/.elasticdl/models"
_EXAMPLES = (
    "elasticdl sql \"SELECT * FROM 'employee.csv' LABEL income INTO income_model\"",
    "elasticdl sql \"SELECT * FROM 'new.csv' TO PREDICT USING income_model\"",
    "elasticdl sql -f nightly.sql --db postgresql://reader@db.example/shop",
    'elasticdl sql "SHOW MODELS"',
    "elasticdl sql -n ml --secret shop -f nightly.sql   # in a cluster",
    "elasticdl sql                        # a prompt",
)
_DESCRIPTION = (
    "Trains, evaluates, predicts and explains with SQL; docs/sql.md has the language.\n"
    "Without --db an embedded DuckDB answers, so that files are tables: FROM 'a.csv'.\n"
    "A URL with a password belongs into $ELASTICDL_SQL_URL, not on the command line."
)


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "sql",
        handler=sql,
        help_text="train, evaluate, predict and explain with SQL",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "statements",
        nargs="?",
        metavar="STATEMENTS",
        help="one or several, with semicolons between them (default: a prompt)",
    )
    parser.add_argument(
        "-f", "--file", type=Path, metavar="FILE", help="statements from a file"
    )
    parser.add_argument(
        "--db",
        metavar="URL",
        help="where the tables are: a URL (mysql://, postgresql://, sqlite://, ...), "
        "or a DuckDB or SQLite file (default: $ELASTICDL_SQL_URL, else DuckDB without "
        "a file)",
    )
    add_models_dir(parser)
    sql_cluster.add_options(parser)
    # What pods of a statement are told to do; `sql.remote.messages` has the form.
    parser.add_argument("--step", help=argparse.SUPPRESS)
    add_overrides(parser)
    add_jobs_dir(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run nothing: write the values file of a TO TRAIN, its module and data",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="where --dry-run writes (default: dry-run)",
    )


def add_models_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--models-dir`."""
    parser.add_argument(
        "--models-dir",
        type=Path,
        metavar="DIR",
        help=f"the registry (default: $ELASTICDL_MODELS_DIR, or {DEFAULT_MODELS_DIR})",
    )


def models_dir(args: argparse.Namespace) -> Path:
    """Return the folder of the registry."""
    given = args.models_dir or args.environ.get(names.ENV_MODELS_DIR)
    return Path(given or DEFAULT_MODELS_DIR).expanduser().absolute()


def sql(args: argparse.Namespace) -> int:
    """Run the statements; stop at the first that fails."""
    from elasticdl.sql.data.source import engine_of, open_source
    from elasticdl.sql.running.statements import only_reads

    with _stoppable():
        if args.step is not None:
            return _step(args)
        text = _text(args)
        if is_cluster_asked(args):
            return _answered(_there(args), text, debug=args.debug)
        url = args.db or args.environ.get(names.ENV_SQL_URL, "")
        # A job of hours would keep others from reading the same database.
        reading = text is not None and only_reads(text, engine_of(url))
        source = open_source(url, reading=reading)
        try:
            return _answered(_session(args, source), text, debug=args.debug)
        finally:
            source.close()


@contextmanager
def _stoppable() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C: rows on disk, perhaps of many GB, go with it."""
    from elasticdl.sql.data.stopping import Terminated

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _answered(session: Session, text: str | None, *, debug: bool) -> int:
    if text is None:
        from elasticdl.sql.prompt import prompt

        return prompt(session, show)
    return run_text(session, text, debug=debug)


def _there(args: argparse.Namespace) -> Session:
    """Return a session whose statements run in a cluster."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, stderr=True)
    return session_there(sql_cluster.remote_of(args, console), console)


def session_there(remote: Remote, console: Console) -> Session:
    """Return a session of a cluster."""
    from elasticdl.sql.registry import Registry
    from elasticdl.sql.running.session import Session

    return Session(
        remote,
        Registry(Path(remote.models)),
        remote.place.run_job,
        say=lambda line: console.print(line, soft_wrap=True),
        elsewhere=remote,
    )


def _step(args: argparse.Namespace) -> int:
    """Do one part of a statement, in a pod beside the volume."""
    from elasticdl.sql.problems import StatementError
    from elasticdl.sql.remote import messages
    from elasticdl.sql.remote.steps import run_step

    step = messages.read_step(args.step, args.statements)
    try:
        found = run_step(step, args.environ.get(names.ENV_SQL_URL, ""), print)
    except StatementError as error:
        print(messages.problems_line(error.problems))
        return error.exit_code
    print(messages.answer_line(found), flush=True)
    return ExitCode.OK


def run_text(session: Session, text: str, *, debug: bool = False) -> int:
    """Run the statements of a text and print their answers; the exit code."""
    from elasticdl.sql.problems import StatementError
    from elasticdl.sql.running.statements import read, run_one

    statements = read(session, text)
    for number, statement in enumerate(statements, 1):
        try:
            for answer in run_one(session, statement, text):
                show(answer)
        except ElasticDLError as error:
            if debug:
                raise
            at = statement.at
            if len(statements) > 1 and not isinstance(error, StatementError):
                first = statement.text.strip().splitlines()[0]
                print(f"statement {number}, line {at.line}: {first}", file=sys.stderr)
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    return ExitCode.OK


def _text(args: argparse.Namespace) -> str | None:
    """Return the statements; None for a prompt."""
    if args.statements is not None and args.file is not None:
        raise SpecError("got statements and --file, expected one of them")
    if args.output is not None and not args.dry_run:
        raise SpecError("-o: got it without --dry-run, which alone writes there")
    if args.file is not None:
        try:
            return str(args.file.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(
                f"{args.file}: cannot be read: {error}; expected a file of statements"
            ) from error
    if args.statements is None and sys.stdin.isatty():
        return None
    text = str(args.statements) if args.statements is not None else sys.stdin.read()
    if not text.strip():
        raise SpecError("got no statement; `elasticdl sql --help` shows some")
    return text


def _session(args: argparse.Namespace, source: Source) -> Session:
    from rich.console import Console

    from elasticdl.sql.registry import Registry
    from elasticdl.sql.running.session import Session

    console = Console(highlight=False, markup=False, stderr=True)

    def run_job(values: ValuesFile) -> JobReport:
        return run_here(values, args, console)

    dry_run = (args.output or Path("dry-run")) if args.dry_run else None
    return Session(
        source,
        Registry(models_dir(args)),
        run_job,
        say=lambda line: console.print(line, soft_wrap=True),
        overrides=tuple(args.overrides),
        dry_run=dry_run,
    )


def run_here(
    values: ValuesFile, args: argparse.Namespace, console: Console
) -> JobReport:
    """Run a statement's job on this machine, shown on standard error.

    Raises JobError with the job's own last line unless it succeeded.
    """
    from elasticdl import client
    from elasticdl.cli.train import watch
    from elasticdl.job.words import JobState
    from elasticdl.sql.problems import in_one_line
    from elasticdl.views import formatting

    # A job's processes need no password of the source.
    environ = {k: v for k, v in args.environ.items() if k != names.ENV_SQL_URL}
    launcher = client.launch(
        values, environ=environ, jobs_dir=args.jobs_dir, restart=True, free_name=True
    )
    outcome = watch(launcher, console)
    report = outcome.report
    if report is not None and report.status == JobState.SUCCEEDED:
        return report
    message = report.message if report is not None else outcome.message
    why = in_one_line(formatting.without_trace(message)) or "it was stopped"
    logs = formatting.path(launcher.job_dir.logs_dir)
    name = launcher.spec.name
    raise JobError(f"job {name} did not succeed: {why} (logs: {logs})")


def show(answer: Answer) -> None:
    """Print an answer: a table that fits the terminal, bars or lines."""
    from rich.console import Console

    from elasticdl.sql.running.session import Bars, Table, Told
    from elasticdl.views.terminal import answers

    match answer:
        case Told(lines):
            for line in lines:
                print(line)
        case Table(columns, rows, more):
            console = Console(highlight=False, markup=False)
            answers.print_table(console, columns, rows, more=more)
        case Bars(title, values):
            console = Console(highlight=False, markup=False)
            answers.print_bars(console, title, values)
