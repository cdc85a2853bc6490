"""The `elasticdl` command: parses, calls the verb, turns errors into one message.

Owns the top-level parser, the environment and exit codes. Each verb has a module of
its own with `add_parser`; what is heavy is imported by its handler, so that help and
completion come at once. Must not do any verb's work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from elasticdl import __version__
from elasticdl.cli import (
    audit,
    clean,
    completion,
    dashboard,
    data,
    explain,
    faults,
    jobs,
    models,
    profile,
    report,
    scale,
    sql,
    top,
    train,
    zoo,
)
from elasticdl.cli.clusters import cluster, simulate
from elasticdl.cli.files import convert, convert_flags, validate
from elasticdl.cli.options import flags
from elasticdl.cli.options.arguments import Parser
from elasticdl.errors import ElasticDLError, ExitCode
from elasticdl.job import names
from elasticdl.job.spec.problems import did_you_mean

_DEFAULT_JOBS_DIR = "~/.elasticdl/jobs"

_EPILOG = """\
examples:
  elasticdl train -f values/digits.yaml
  elasticdl train -f values/digits.yaml --set job.worker.replicas=2
  elasticdl status digits --watch
  elasticdl explain digits worker-1     # what happened to it, and why
  elasticdl kill digits worker-1        # fault injection: the job goes on
  elasticdl sql "SELECT * FROM 'employee.csv' LABEL income INTO income_model"
  elasticdl train -f values/digits.yaml -n ml      # in a cluster, namespace ml
  elasticdl list -A                     # the jobs of the kube context's cluster

exit codes:
  0    done; the job succeeded
  1    the job failed, or is not in the state the command needs
  2    the command line is wrong, or there is no job or replica of that name
  3    the values file, or a classic flag, is wrong
  4    the model module raised, or broke the contract
  5    data is missing, empty or corrupt
  6    a checkpoint or the journal cannot be written or read
  7    the platform refused: a port in use, no answer
  8    audit: a finished epoch missed a record, or a task went by other rules
  9    fenced: another one took this one's place
  10   (of a master's pod) the job failed, as 1 elsewhere
  70   a bug ended the master, again and again
  75   (of a PS or a worker) its volume is away; it is started again
  130  the job was stopped before its end
  143  (of a master's pod) told to leave; the job goes on under the next master

environment:
  ELASTICDL_JOBS_DIR   folder of the jobs' folders (default ~/.elasticdl/jobs)
  ELASTICDL_MODELS_DIR registry of models that SQL trained (~/.elasticdl/models)
  ELASTICDL_SQL_URL    where the tables of `sql` are, as postgresql://user@host/name
  KUBECONFIG           kube config of the clusters (default ~/.kube/config)
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="elasticdl",
        description="Elastic deep learning for Keras 3: jobs that survive the loss of "
        "any of their processes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"elasticdl {__version__}"
    )
    parser.add_argument(
        "--debug", action="store_true", help="show the stack trace of an error"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    for module in (
        train,
        sql,
        models,
        profile,
        jobs,
        top,
        explain,
        scale,
        faults,
        report,
        dashboard,
        audit,
        clean,
        cluster,
        simulate,
        data,
        validate,
        convert,
        convert_flags,
        zoo,
    ):
        module.add_parser(verbs)
    completion.add_parser(verbs)
    parser.set_defaults(known_verbs=tuple(verbs.choices))
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    parser = make_parser()
    _check_verb(parser, arguments)
    args = flags.parse(parser, arguments)
    args.environ = dict(os.environ)
    args.jobs_dir = _jobs_dir(args)
    args.make_parser = make_parser
    try:
        return int(args.handler(args) or ExitCode.OK)
    except ElasticDLError as error:
        if args.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.STOPPED
    except BrokenPipeError:
        # The reader has seen enough (`elasticdl logs | head`); Python's own flush at
        # exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except OSError as error:
        if args.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.JOB_FAILED


def _check_verb(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """End with a hint at a verb that does not exist, instead of a list of all."""
    verb = next((word for word in arguments if not word.startswith("-")), None)
    known = parser.get_default("known_verbs")
    if verb is None or verb in known:
        return
    hint = did_you_mean(verb, known)
    parser.exit(ExitCode.USAGE, f"error: no command {verb!r}: {hint}\n")


def _jobs_dir(args: argparse.Namespace) -> Path:
    given = getattr(args, "jobs_dir", None) or os.environ.get(names.ENV_JOBS_DIR)
    return Path(given or _DEFAULT_JOBS_DIR).expanduser().absolute()


def run() -> None:
    """Entry point of the `elasticdl` script."""
    code = main(sys.argv[1:])
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # All is said; one more Ctrl-C ends what is left of Python without its trace.
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    sys.exit(code)


if __name__ == "__main__":
    run()
