"""The master's process: one message and an exit code, whatever is wrong."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from elasticdl.client.local.launcher import Timing
from elasticdl.errors import ExitCode, JobError
from elasticdl.job import names
from elasticdl.job.context import RoleContext
from elasticdl.job.names import JobDir, Role
from elasticdl.job.status import JobReport
from elasticdl.job.words import JobState
from elasticdl.master import main as masters
from elasticdl.master.main import main
from elasticdl.master.patience import END_SECONDS, REPORT_SECONDS
from elasticdl.master.serving import GRACE_SECONDS
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.metrics.event_loop import answers
from elasticdl.runner.local.platform import JobPlace, LocalPlatform
from elasticdl.runner.local.platform_server import PlatformServer
from elasticdl.testing.scripted import TOKEN

VALUES = """\
kind: job
job:
  name: j
  model: {definition: m.f}
  data: {training: nothing.csv}
  worker: {graceSeconds: 1}
"""


def environ(job_dir: JobDir, *, master: str, platform: str = "") -> dict[str, str]:
    return {
        names.ENV_JOB_DIR: str(job_dir.root),
        names.ENV_ROLE: "master",
        names.ENV_INDEX: "0",
        names.ENV_GENERATION: "1",
        names.ENV_MASTER_ADDRESS: master,
        names.ENV_PLATFORM_ADDRESS: platform,
        names.ENV_TOKEN: TOKEN,
    }


@pytest.fixture
def job_dir(tmp_path: Path) -> JobDir:
    made = JobDir(tmp_path)
    made.spec_file.write_text(VALUES)
    return made


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("elasticdl")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_a_role_that_is_started_by_hand_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main({}) == ExitCode.SPEC
    assert "not by hand" in capsys.readouterr().err


def test_a_wrong_specification_ends_with_its_mistakes(
    job_dir: JobDir, capsys: pytest.CaptureFixture[str]
) -> None:
    job_dir.spec_file.write_text("kind: job\njob: {name: J!}\n")
    assert main(environ(job_dir, master="127.0.0.1:0")) == ExitCode.SPEC
    assert "job.name" in capsys.readouterr().err


def test_a_master_whose_event_loop_stands_still_is_not_healthy() -> None:
    loop = asyncio.new_event_loop()
    assert not answers(loop, 0.05)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert answers(loop, 20.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert not answers(loop, 20.0)


def test_a_crash_of_the_master_is_told_from_a_job_that_failed(
    job_dir: JobDir, capsys: pytest.CaptureFixture[str]
) -> None:
    async def bug(context: RoleContext) -> ExitCode:
        raise ZeroDivisionError("a bug of ours")

    in_pod = environ(job_dir, master="127.0.0.1:1") | {
        names.ENV_PLATFORM: "kubernetes",
        names.ENV_NAMESPACE: "ml",
        names.ENV_CONFIG_MAP: "elasticdl-j",
    }
    assert main(in_pod, bug) == ExitCode.CRASHED
    assert "a bug of ours" in capsys.readouterr().err


def test_a_job_that_failed_in_a_pod_does_not_end_as_a_failed_import_does(
    job_dir: JobDir,
) -> None:
    async def refused(context: RoleContext) -> ExitCode:
        raise JobError("another kind of job is unfinished there")

    in_pod = environ(job_dir, master="127.0.0.1:1") | {
        names.ENV_PLATFORM: "kubernetes",
        names.ENV_NAMESPACE: "ml",
        names.ENV_CONFIG_MAP: "elasticdl-j",
    }
    told = main(in_pod, refused)
    python = subprocess.run(
        [sys.executable, "-c", "import no_such_module"], check=False
    )
    assert told == ExitCode.POD_JOB_FAILED != python.returncode


def test_a_port_in_use_is_one_message_and_exit_code_platform(
    job_dir: JobDir, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(environ(job_dir, master=address)) == ExitCode.PLATFORM
    err = capsys.readouterr().err
    assert "in use" in err
    assert "Traceback" not in err


def silent_roles(role: Role) -> Sequence[str]:
    """Workers and PS that are alive and never say a word."""
    assert role is not Role.MASTER
    return (sys.executable, "-S", "-c", "import signal; signal.pause()")


def stopped_once_it_serves(job_dir: JobDir, number: int, **more: str) -> list[str]:
    """Start a master and stop it as soon as it serves; return what it said."""
    platform = LocalPlatform(
        JobPlace(job_dir, "127.0.0.1:1", TOKEN, dict(os.environ), silent_roles)
    )
    server = PlatformServer(platform, token=TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [sys.executable, "-m", "elasticdl.master.main"],
        env={
            **os.environ,
            **environ(job_dir, master=address, platform=server.address),
            "GRPC_VERBOSITY": "ERROR",  # as both platforms have it
            **more,
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if f"master generation {number} of job j" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(30) == ExitCode.STOPPED, "".join(lines)
        return lines
    finally:
        process.kill()
        process.communicate()
        server.close()
        platform.close(grace_seconds=0.0)


def test_the_first_sigterm_ends_the_job_in_good_order(job_dir: JobDir) -> None:
    lines = stopped_once_it_serves(job_dir, 1)
    assert "job j stopped: 0 records" in lines[-1]
    report = JobReport.model_validate_json(job_dir.report_file.read_text())
    assert report.status is JobState.STOPPED


HANGS = """
import asyncio, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from elasticdl.errors import ExitCode
from elasticdl.master import main as masters

async def serve(context):
    for pool in (None, ThreadPoolExecutor(1)):
        asyncio.get_running_loop().run_in_executor(pool, threading.Event().wait)
    await asyncio.sleep(0.1)  # they have begun
    return ExitCode.STORAGE

masters._LEAVE_SECONDS = 0.5
sys.exit(masters.main(os.environ, serve, at_end=masters.leave_in_time))
"""


def test_a_master_that_has_told_all_ends_though_a_disk_does_not_answer(
    job_dir: JobDir,
) -> None:
    in_pod = environ(job_dir, master="127.0.0.1:1") | {
        names.ENV_PLATFORM: "kubernetes",
        names.ENV_NAMESPACE: "ml",
        names.ENV_CONFIG_MAP: "elasticdl-j",
    }
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        env={**os.environ, **in_pod},
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == ExitCode.STORAGE
    assert "ends without it" in done.stderr


def runs(job_dir: JobDir) -> int:
    ledger = Ledger.open(job_dir.journal_dir, now=1.0)
    ledger.close()
    return ledger.count_of(facts.RunFact)


def test_a_launch_whose_first_master_died_before_it_wrote_a_word_begins_all_the_same(
    job_dir: JobDir,
) -> None:
    """Its second master must not take the stop of the launch before for its own."""
    stopped_once_it_serves(job_dir, 1, **{names.ENV_LAUNCH: "first"})
    job_dir.report_file.unlink()
    second = {names.ENV_LAUNCH: "second", names.ENV_GENERATION: "2"}
    stopped_once_it_serves(job_dir, 2, **second)
    assert runs(job_dir) == 2
    # Another master of that launch says how the job ended, and begins nothing.
    stopped_once_it_serves(job_dir, 4, **second)
    assert runs(job_dir) == 2


def test_a_launcher_is_more_patient_with_an_end_than_its_master() -> None:
    """Else it kills a master that has told the end, and starts another one."""
    leaves = masters._LEAVE_SECONDS + masters._SAY_SECONDS + GRACE_SECONDS
    assert leaves < Timing().silent
    writes = END_SECONDS + REPORT_SECONDS
    assert writes + END_SECONDS + leaves < Timing().after_report
