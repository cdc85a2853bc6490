"""`train`, `evaluate`, `predict`: run a job here, in the foreground, or in a cluster.

Owns reading the values, and of a job here showing progress, what Ctrl-C means and the
last line. Must not know how a job is launched: that is `client`. What is told of a job
that goes to a cluster is in `cli.submit`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from elasticdl.cli import submit
from elasticdl.cli.options import flags
from elasticdl.cli.options.arguments import Verbs, add_jobs_dir, add_overrides, add_verb
from elasticdl.errors import ExitCode, SpecError
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.words import JobState
from elasticdl.views import formatting as text

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console

    from elasticdl.client import Launcher, LaunchOutcome
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.job.values.document import ValuesFile

_REFRESH_SECONDS = 0.2  # Five redraws a second look live.

_EXAMPLES = {
    "train": (
        "elasticdl train -f values/digits.yaml",
        "elasticdl train -f values/digits.yaml --set job.training.epochs=5",
        "elasticdl train --model_def digits.cnn.custom_model "
        "--training_data data/digits/train --output outputs/digits",
        "elasticdl train -f values/digits.yaml -n ml      # in a cluster",
        "elasticdl train --image_name=registry/zoo:1 --model_def=m.f.model "
        "--training_data=mnist/train",
    ),
    "evaluate": (
        "elasticdl evaluate -f values/digits.yaml",
        "elasticdl evaluate -f values/digits.yaml "
        "--set job.checkpoint.initFrom=checkpoints/version-900",
    ),
    "predict": (
        "elasticdl predict -f values/digits.yaml --set job.data.prediction=data/new",
    ),
}
_DESCRIPTION = {
    "train": "Trains the job of a values file on this machine, or the job that classic "
    "flags\nstand for. A job that was stopped, killed or failed goes on where it was.\n"
    "Ctrl-C stops it cleanly (tasks handed back, checkpoint written), a second Ctrl-C\n"
    "at once. A job with an image goes to a cluster: one release of the chart, with\n"
    "Helm. Its commands end then, the job does not.",
    "evaluate": "Evaluates a checkpoint on the validation data. With the values file "
    "of a training\njob, the newest checkpoint of that job.",
    "predict": "Runs a checkpoint over the prediction data and writes what it says. "
    "With the\nvalues file of a training job, the newest checkpoint of that job.",
}
_HELP = {
    "train": "train a model, here or in a cluster",
    "evaluate": "evaluate a checkpoint",
    "predict": "predict with a checkpoint",
}


def add_parser(verbs: Verbs) -> None:
    """Add the three verbs that run a job."""
    for verb, help_text in _HELP.items():
        parser = add_verb(
            verbs,
            verb,
            handler=run_job,
            help_text=help_text,
            description=_DESCRIPTION[verb],
            examples=_EXAMPLES[verb],
        )
        parser.add_argument(
            "-f", "--file", metavar="FILE", type=Path, help="values file of the job"
        )
        add_overrides(parser)
        parser.add_argument(
            "--restart",
            action="store_true",
            help="begin afresh: move an unfinished job of this name aside",
        )
        add_jobs_dir(parser)
        submit.add_options(parser)
        flags.add_classic_flags(parser, verb)


def run_job(args: argparse.Namespace) -> int:
    """Launch the job, show it until it ends; its exit code. Or submit it."""
    from rich.console import Console

    from elasticdl import client
    from elasticdl.views.terminal import live

    values = read_values(args)
    if submit.goes_to_cluster(args, values.job):
        return submit.submit_job(args, values)
    _check_model(values.job)
    console = Console(highlight=False, markup=False)
    try:
        launcher = client.launch(
            values, environ=args.environ, jobs_dir=args.jobs_dir, restart=args.restart
        )
        console.print(live.greeting(launcher.spec), soft_wrap=True)
        folder = text.path(launcher.job_dir.root)
        console.print(f"folder: {folder}", soft_wrap=True)
    except KeyboardInterrupt:
        print(f"job {values.job.name} stopped: while it was launched", file=sys.stderr)
        raise
    outcome = watch(launcher, console)
    return show_outcome(launcher, outcome, console, debug=args.debug)


def _check_model(job: JobSpec) -> None:
    """Raise UserCodeError if the model's file is not there, before processes start.

    A worker would say it half a minute later.
    """
    from elasticdl.model.user_code import locate

    if not job.model.files:
        locate(Path(job.model.zoo), job.model.definition)


def watch(launcher: Launcher, console: Console) -> LaunchOutcome:
    """Show a job until it ends; Ctrl-C stops it cleanly, a second one at once."""
    from elasticdl.views.terminal import live

    with live.choose_view(console, launcher.spec.name) as view, _signals() as signals:
        told = 0
        while True:
            outcome = launcher.wait(_REFRESH_SECONDS)
            notices = launcher.take_notices()
            if len(signals) > told:
                told = len(signals)
                notices.append(_pass_on(launcher, told))
            view.update(launcher.status, notices)
            if outcome is not None:
                return outcome


def read_values(args: argparse.Namespace) -> ValuesFile:
    """Return the job of the values file or of the classic flags."""
    from elasticdl.job.values.file import load_values

    if args.file is None:
        return flags.values_from_args(args, args.verb)
    flags.refuse_beside_file(args)
    overrides = list(args.overrides)
    if namespace := flags.namespace_of(args):
        overrides.append(f"job.namespace={namespace}")
    values = load_values(args.file, overrides=overrides)
    if values.job.type == args.verb:
        return values
    if args.verb == JobType.TRAIN:
        raise SpecError(
            f"{args.file}: job.type is {values.job.type}; run it with "
            f"`elasticdl {values.job.type} -f {args.file}`"
        )
    others = [one for one in overrides if not one.startswith("job.name=")]
    trained = load_values(args.file, overrides=others)
    jobs_dir = args.jobs_dir
    if submit.goes_to_cluster(args, trained.job):
        jobs_dir = submit.jobs_dir(args, trained)
    changes = _of_trained(trained, args.verb, jobs_dir)
    return load_values(args.file, overrides=[*changes, *overrides])


def _of_trained(values: ValuesFile, verb: str, jobs_dir: PurePath) -> list[str]:
    """Return the overrides to evaluate, or predict with, a trained job's model.

    It has a name of its own, so that the trained job's folder stays, and begins from
    the trained job's newest checkpoint unless the file or `--set` names one.
    """
    job = values.job
    changes = [f"job.type={verb}", f"job.name={job.name}-{verb}"]
    if not job.checkpoint.init_from:
        trained = job.checkpoint.dir or str(jobs_dir / job.name / "checkpoints")
        changes += [f"job.checkpoint.initFrom={trained}"]
    return changes


_GOES_ON = "started again it goes on from its newest checkpoint, if it has one"


def show_outcome(
    launcher: Launcher, outcome: LaunchOutcome, console: Console, *, debug: bool = False
) -> int:
    """Print the final report, or why there is none; the exit code.

    An error is told once, in the last line; `debug` adds the trace that it came with.
    """
    from elasticdl.views.terminal.tables import last_words, report_view, way_on

    name = launcher.spec.name
    report = outcome.report
    if report is None:
        stopped = outcome.exit_code == ExitCode.STOPPED
        word = "stopped" if stopped else "failed"
        message = outcome.message if debug else text.without_trace(outcome.message)
        print(f"logs: {text.path(launcher.job_dir.logs_dir)}", file=sys.stderr)
        if stopped:
            print(_GOES_ON, flush=True)
        print(f"job {name} {word}: {message}", file=sys.stderr)
        return outcome.exit_code
    console.print()
    console.print(report_view(report), crop=False)
    console.print()
    ending = f"job {name} {last_words(report)}"
    if report.status == JobState.FAILED:
        if debug:
            print(report.message, file=sys.stderr)
        print(f"logs: {text.path(launcher.job_dir.logs_dir)}", file=sys.stderr)
        print(ending, file=sys.stderr)
        return outcome.exit_code
    where = f"report: {text.path(launcher.job_dir.report_file)}"
    console.print(where, soft_wrap=True)
    if outcome.exit_code == ExitCode.STOPPED:
        console.print(way_on(report))
    console.print(ending, soft_wrap=True)
    return outcome.exit_code


def _pass_on(launcher: Launcher, times: int) -> str:
    if times == 1:
        launcher.stop("stopped by a signal")
        return (
            "stopping: tasks are handed back, a checkpoint is written; Ctrl-C again: "
            "at once"
        )
    launcher.kill()
    return "stopping at once"


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and the like; handlers do nothing else, the loop acts.

    Who took SIGTERM before hears of it behind the job: it meant this process, too.
    """
    numbers: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        numbers.append(number)

    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
        kinds.append(signal.SIGHUP)
    before = {kind: signal.signal(kind, note) for kind in kinds}
    try:
        yield numbers
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    ending = before[signal.SIGTERM]
    if signal.SIGTERM in numbers and callable(ending):
        ending(signal.SIGTERM, None)
