"""Who is told of a job's end: a real command, a real HTTP server on loopback."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from elasticdl.job.spec.ending import OnEndSpec
from elasticdl.job.status import JobReport
from elasticdl.job.words import JobState
from elasticdl.master.telling import on_end
from elasticdl.master.telling.on_end import End

SAYS = """
import json, os, sys
names = ("JOB", "NAMESPACE", "STATE", "MESSAGE", "REPORT", "TOKEN", "METRICS_TOKEN")
told = {name: os.environ.get(f"ELASTICDL_{name}") for name in names}
told["mine"] = os.environ.get("MINE")
open(sys.argv[1], "w").write(json.dumps(told))
"""


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted; answers with the statuses it is given, then with 204."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, object]]] = []
        self.answers: list[int] = []
        self.sends_to = ""  # `Location` of each answer
        self.asked: list[str] = []  # paths of GET
        self.silent = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                receiver.posted.append((self.path, json.loads(body)))
                if receiver.silent.is_set():
                    return
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                if receiver.sends_to:
                    self.send_header("Location", receiver.sends_to)
                self.end_headers()

            def do_GET(self) -> None:
                receiver.asked.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hooks/secret"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}
    )
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def report(**more: object) -> JobReport:
    fields = {
        "name": "digits",
        "type": "train",
        "strategy": "parameterServer",
        "status": "succeeded",
        "message": "",
        "started": 0.0,
        "seconds": 12.5,
        "epochs": 2,
        "steps": 40,
        "version": 40,
        "records": 640,
        "records_per_second": 51.2,
        "replayed_records": 0,
        "replays": [],
        "bad_records": [],
        "skipped_batches": 0,
        "lost_updates": 0,
        "rewinds": 0,
        "master_restarts": 0,
        "goodput_seconds": {"train": 10.0},
        "goodput": 0.8,
        "last_loss": None,
        "metrics": {"accuracy": 0.97, "f1": None},
        "evaluations": [],
        "relaunches": [],
        "checkpoint": "",
        "exports": ["out/model.keras"],
    }
    return JobReport.model_validate({**fields, **more})


def end(tmp_path: Path, state: JobState = JobState.SUCCEEDED, **more: object) -> End:
    fields = {"message": "", "report": report(), **more}
    return End("digits", "ml", state, report_file=tmp_path / "report.json", **fields)


def test_a_webhook_gets_the_state_and_the_figures(receiver, tmp_path) -> None:
    on_end.tell(OnEndSpec(webhook=receiver.url), end(tmp_path))
    ((path, told),) = receiver.posted
    assert path == "/hooks/secret"
    assert (told["name"], told["namespace"], told["state"]) == (
        "digits",
        "ml",
        "succeeded",
    )
    assert told["report"]["metrics"] == {"accuracy": 0.97, "f1": None}
    assert told["report"]["records"] == 640
    assert told["report"]["relaunches"] == 0


def test_a_webhooks_url_may_come_from_the_environment(
    receiver, tmp_path, caplog
) -> None:
    wanted = OnEndSpec(webhook_from="HOOK")
    told = end(tmp_path, environ={"HOOK": f"{receiver.url}\n"})
    on_end.tell(wanted, told)
    ((path, _),) = receiver.posted
    assert path == "/hooks/secret"
    assert "secret" not in caplog.text
    assert wanted.most_seconds > 0


@pytest.mark.parametrize(
    ("environ", "said"),
    [({}, "got nothing in HOOK"), ({"HOOK": "secret"}, "got a text that is none")],
)
def test_an_environment_without_the_url_is_told(
    environ, said, tmp_path, caplog
) -> None:
    on_end.tell(OnEndSpec(webhook_from="HOOK"), end(tmp_path, environ=environ))
    assert f"job.onEnd.webhook: {said}" in caplog.text
    assert "secret" not in caplog.text


def test_a_job_that_failed_before_it_had_a_report_is_told_too(
    receiver, tmp_path
) -> None:
    failed = end(tmp_path, JobState.FAILED, message="no checkpoint", report=None)
    on_end.tell(OnEndSpec(webhook=receiver.url), failed)
    ((_, told),) = receiver.posted
    assert (told["state"], told["message"]) == ("failed", "no checkpoint")
    assert told["report"] == {}


@pytest.mark.parametrize(("namespace", "runs"), [("ml", False), ("local", True)])
def test_in_a_cluster_no_command_starts_in_the_folder_that_workers_can_write(
    namespace, runs, tmp_path, monkeypatch
) -> None:
    """There a master starts on the claim, and what it runs has the master's rights."""
    (tmp_path / "tools").mkdir()
    planted = tmp_path / "tools" / "report.py"
    planted.write_text("open('ran', 'w').write('')")
    monkeypatch.chdir(tmp_path)
    told = replace(end(tmp_path), namespace=namespace)
    on_end.tell(OnEndSpec(command=[sys.executable, "tools/report.py"]), told)
    assert (tmp_path / "ran").exists() is runs


def test_a_server_in_trouble_is_asked_again_a_bounded_number_of_times(
    receiver, tmp_path, caplog
) -> None:
    waited: list[float] = []
    receiver.answers = [503, 429]
    on_end.tell(OnEndSpec(webhook=receiver.url), end(tmp_path), pause=waited.append)
    assert len(receiver.posted) == 3
    assert waited == [1.0, 4.0]
    assert "answered" not in caplog.text
    receiver.answers = [500, 500, 500, 500]
    on_end.tell(OnEndSpec(webhook=receiver.url), end(tmp_path), pause=waited.append)
    assert len(receiver.posted) == 6
    assert "answered 500" in caplog.text
    assert "secret" not in caplog.text


def test_a_refusal_is_final(receiver, tmp_path, caplog) -> None:
    receiver.answers = [404]
    on_end.tell(OnEndSpec(webhook=receiver.url), end(tmp_path))
    assert len(receiver.posted) == 1
    assert "answered 404" in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_no_success(
    status, receiver, tmp_path, caplog
) -> None:
    """Followed, the POST becomes a GET without its body, of whatever address."""
    receiver.answers = [status]
    receiver.sends_to = f"{receiver.url}/elsewhere"
    on_end.tell(OnEndSpec(webhook=receiver.url), end(tmp_path), pause=lambda _: None)
    assert receiver.asked == []
    assert len(receiver.posted) == 1
    assert f"answered {status}" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("url", ["http://me:secret@host/x", "http://host/secret\x7f"])
def test_a_url_that_cannot_be_called_does_not_reach_the_log(
    url, tmp_path, caplog
) -> None:
    wanted = OnEndSpec(webhook_from="HOOK")
    on_end.tell(wanted, end(tmp_path, environ={"HOOK": url}), pause=lambda _: None)
    assert "job.onEnd.webhook: " in caplog.text
    assert "secret" not in caplog.text


def test_a_server_that_does_not_answer_is_given_up(receiver, tmp_path, caplog) -> None:
    receiver.silent.set()
    wanted = OnEndSpec(webhook=receiver.url, timeout_seconds=0.2)
    on_end.tell(wanted, end(tmp_path), pause=lambda _: None)
    assert len(receiver.posted) == 3
    assert "cannot be reached" in caplog.text


def test_a_command_learns_all_from_its_environment(tmp_path) -> None:
    out = tmp_path / "told.json"
    secrets = {"ELASTICDL_TOKEN": "secret", "ELASTICDL_METRICS_TOKEN": "secret"}
    environ = {"MINE": "kept", **secrets}
    failed = end(tmp_path, JobState.FAILED, message="worker-0 failed", environ=environ)
    on_end.tell(OnEndSpec(command=[sys.executable, "-c", SAYS, str(out)]), failed)
    assert json.loads(out.read_text()) == {
        "JOB": "digits",
        "NAMESPACE": "ml",
        "STATE": "failed",
        "MESSAGE": "worker-0 failed",
        "REPORT": str(tmp_path / "report.json"),
        "TOKEN": None,
        "METRICS_TOKEN": None,
        "mine": "kept",
    }


def test_a_command_imports_nothing_from_the_folder_that_it_starts_in(
    tmp_path, monkeypatch, caplog
) -> None:
    (tmp_path / "hmac.py").write_text("raise SystemExit('HIJACKED')")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", "import hmac"]
    on_end.tell(OnEndSpec(command=command), end(tmp_path, environ={**os.environ}))
    assert "HIJACKED" not in caplog.text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/no/such/program"], "cannot be run: No such file"),
        (
            [sys.executable, "-c", "raise SystemExit('no mail')"],
            "ended with 1\nno mail",
        ),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "longer than 0.5 s"),
    ],
)
def test_what_fails_is_logged_and_nothing_else(command, said, tmp_path, caplog) -> None:
    on_end.tell(OnEndSpec(command=command, timeout_seconds=0.5), end(tmp_path))
    assert said in caplog.text
    assert "outcome stays as it is" in caplog.text


def test_the_end_of_a_run_is_told_once_by_whichever_master_comes_to_it(
    rig, tmp_path
) -> None:
    told = tmp_path / "told"
    adds_a_line = f"open({str(told)!r}, 'a').write('told\\n')"

    async def tell(rig) -> int:
        ending = rig.running.result()
        await on_end.tell_once(rig.master.job, ending, namespace="local", environ={})
        return len(told.read_text().splitlines())

    async def story(rig) -> None:
        async with rig.serving():
            await rig.ended()
            # Killed here: the report is written, and nobody was told.
        async with rig.serving():
            await rig.ended()
            assert await tell(rig) == 1
        async with rig.serving():
            await rig.ended()
            assert await tell(rig) == 1

    rig.run(story, on_end={"command": [sys.executable, "-c", adds_a_line]})
