"""Tells others that a job has ended: a command, a webhook.

Owns what they are told and how often it is tried. Called by `master.serving` when all
else is done, and by a launcher whose masters never got so far. Whatever happens here is
logged, and changes nothing about the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.errors import JournalError
from elasticdl.job import names
from elasticdl.job.spec.ending import WEBHOOK_PATTERN, WEBHOOK_TRIES, OnEndSpec
from elasticdl.job.status import JobReport
from elasticdl.job.words import JobState
from elasticdl.master.patience import END_SECONDS, within
from elasticdl.master.tasks import facts

if TYPE_CHECKING:
    from elasticdl.master.job_state import Job, JobEnding

log = logging.getLogger(__name__)

_PAUSES_SECONDS = (1.0, 4.0)
# The end of the output has the error; the log is no place for all of it.
_LINES_TOLD = 5
_TOKENS = (names.ENV_TOKEN, names.ENV_METRICS_TOKEN)
# The figures of a report; its lists may be long, and are in the file.
_FIGURES = {
    "type", "strategy", "started", "seconds", "epochs", "steps", "version", "records",
    "records_per_second", "replayed_records", "skipped_batches", "lost_updates",
    "rewinds", "master_restarts", "goodput", "last_loss", "metrics", "checkpoint",
    "exports", "predictions",
}  # fmt: skip


@dataclass(frozen=True)
class End:
    """What `onEnd` reports about the job."""

    name: str
    namespace: str
    state: JobState
    message: str
    report_file: Path
    report: JobReport | None = None
    # Of the command, which the user wrote; the token is none of its business.
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def start_folder(self) -> str | None:
        """Where the command starts; None is the folder of this process.

        In a cluster that is the claim, which workers can write: no file is run there
        that is named as if it were in one's own folder.
        """
        return None if self.namespace == names.NAMESPACE_LOCAL else "/"

    def document(self) -> dict[str, object]:
        """Return the body for the webhook."""
        figures: dict[str, object] = {}
        if self.report is not None:
            # By way of the text: it has null where a figure is not a number.
            figures = json.loads(self.report.model_dump_json(include=_FIGURES))
            figures["relaunches"] = self.report.relaunches_before + len(
                self.report.relaunches
            )
        return {
            "name": self.name,
            "namespace": self.namespace,
            "state": str(self.state),
            "message": self.message,
            "report": figures,
        }

    def environment(self) -> dict[str, str]:
        """Return the environment for the command."""
        kept = {k: v for k, v in self.environ.items() if k not in _TOKENS}
        # The command has the master's rights; workers can write the folder it starts
        # in. A Python among its programs imports nothing from there.
        return (
            {"PYTHONSAFEPATH": "1"}
            | kept
            | {
                names.ENV_ENDED_JOB: self.name,
                names.ENV_NAMESPACE: self.namespace,
                names.ENV_ENDED_STATE: str(self.state),
                names.ENV_ENDED_MESSAGE: self.message,
                names.ENV_ENDED_REPORT: str(self.report_file),
            }
        )


async def tell_once(
    job: Job, ending: JobEnding, *, namespace: str, environ: Mapping[str, str]
) -> None:
    """Report a job's end unless an earlier master of this run has."""
    ledger, wanted = job.parts.ledger, job.spec.on_end
    run = ledger.count_of(facts.RunFact)
    told = any(fact.run == run for fact in ledger.all_of(facts.EndToldFact))
    if told or not (wanted.command or wanted.has_webhook):
        return
    end = End(
        job.spec.name,
        namespace,
        ending.state,
        ending.message,
        job.job_dir.report_file,
        job.report,
        environ,
    )
    await asyncio.get_running_loop().run_in_executor(None, tell, wanted, end)
    ledger.record(facts.EndToldFact(run=run))
    with contextlib.suppress(JournalError):  # then the next master tells it again
        await within(END_SECONDS, ledger.commit(), "the journal")


def tell(
    wanted: OnEndSpec, end: End, *, pause: Callable[[float], None] = time.sleep
) -> None:
    """Run the command and call the webhook; wait for both."""
    if wanted.command:
        problem = _run(
            wanted.command, end.environment(), wanted.timeout_seconds, end.start_folder
        )
        _log("onEnd.command", problem)
    if wanted.has_webhook:
        url = wanted.url(end.environ)
        body = json.dumps(end.document()).encode()
        problem = _no_url(wanted, url) or _post(
            url, body, wanted.timeout_seconds, pause
        )
        _log("onEnd.webhook", problem)


def _no_url(wanted: OnEndSpec, url: str) -> str:
    """Return why a URL from the environment cannot be called; the URL is a secret."""
    if wanted.webhook or re.fullmatch(WEBHOOK_PATTERN, url or "-"):
        return ""
    found = "a text that is none" if url else "nothing"
    return (
        f"got {found} in {wanted.webhook_from}, expected a URL; set it for the master"
    )


def _log(what: str, problem: str) -> None:
    if problem:
        log.error("job.%s: %s; the job's outcome stays as it is", what, problem)
    else:
        log.info("job.%s: done", what)


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    seconds: float,
    folder: str | None,
) -> str:
    """Run the command; return what went wrong, "" if nothing did."""
    try:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what it started ends with it
        )
    except OSError as error:
        return f"{command[0]!r} cannot be run: {error.strerror}"
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"{command[0]!r} took longer than {seconds:g} s and was killed"
    if process.returncode == 0:
        return ""
    lines = output.decode(errors="replace").splitlines()[-_LINES_TOLD:]
    return "\n".join([f"{command[0]!r} ended with {process.returncode}", *lines])


def _post(url: str, body: bytes, seconds: float, pause: Callable[[float], None]) -> str:
    """Call the webhook with retries; return the last error, "" after success."""
    problem = ""
    for number in range(WEBHOOK_TRIES):
        if number:
            pause(_PAUSES_SECONDS[number - 1])
        request = urllib.request.Request(
            url, body, {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with _OPENER.open(request, timeout=seconds) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            problem = f"{_host(url)} answered {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 429):
                return problem  # it will not like it better the next time
        except http.client.InvalidURL:  # its text has the URL, a secret
            return (
                f"the URL of {_host(url)} cannot be called: got a user, a port in "
                "words or control characters in it, expected none"
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = f"{_host(url)} cannot be reached: {error}"
        else:
            return ""
    return f"{problem} ({WEBHOOK_TRIES} tries)"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere would be a GET without its body, and succeed."""

    def redirect_request(self, *_: object) -> None:
        """Follow none: the status is an error then."""


_OPENER = urllib.request.build_opener(_NoRedirects)


def _host(url: str) -> str:
    """Return the loggable part of a URL: the rest is often a secret."""
    return url.split("/", 3)[2].rpartition("@")[2]
