"""What is left to see of a real job: history, explanations, TensorBoard, its end."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from elasticdl.cli.main import main
from elasticdl.job.status import JobStatus, Progress
from elasticdl.job.values.file import edit_values
from elasticdl.master.telling.tensorboard import Scalars
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.usefixtures("unmeasured")

TAGS = {
    "loss",
    "evaluation/accuracy",
    "workers/running",
    "workers/wanted",
    "goodput/share",
    "records_per_second",
}
SAYS = """
import os, sys
open(sys.argv[1], "w").write(
    os.environ["ELASTICDL_STATE"] + " " + open(os.environ["ELASTICDL_REPORT"]).read()
)
"""


@pytest.fixture
def receiver():
    """An HTTP server that keeps what is posted to it; yields its URL and the list."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(
                json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            )
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/end", posted
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def tensorboard():
    """Starts a TensorBoard on a folder; returns its address."""
    started = []

    def start(folder):
        process = subprocess.Popen(
            [
                sys.executable, "-m", "tensorboard.main", "--logdir", str(folder),
                "--host", "127.0.0.1", "--port", "0", "--reload_interval", "1",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        started.append(process)
        for line in process.stderr:
            found = re.search(r" at (http://127\.0\.0\.1:\d+)", line)
            if found:
                return found[1]
        raise AssertionError(f"tensorboard ended with {process.wait()}")

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


def explained(one, capsys, *arguments):
    capsys.readouterr()
    name, jobs_dir = one.values.job.name, str(one.jobs_dir)
    code = main(["explain", name, *arguments, "--jobs-dir", jobs_dir])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_a_job_explains_its_losses_its_sizes_and_its_end(
    job, receiver, tmp_path, capsys
):
    url, posted = receiver
    out = tmp_path / "end.txt"
    one = job(
        "explained",
        training={"epochs": 0, "maxSteps": 100_000},
        onEnd={
            "webhook": url,
            "command": [sys.executable, "-c", SAYS, str(out)],
        },
    )
    victim = one.fault("worker", signal.SIGKILL, at_step=40)
    one.wait_until(
        lambda s: s.relaunches and s.relaunches[0].seconds is not None,
        "a replacement that works",
    )
    edit_values(one.job_dir.spec_file, {"job.worker.replicas": 3})
    one.wait_until(lambda s: s.workers_wanted == 3, "another size")
    edit_values(one.job_dir.spec_file, {"job.training.batchSize": 8})
    one.fault("master", signal.SIGKILL)
    one.wait_until(lambda s: s.master_generation == 2, "the next master")
    edit_values(one.job_dir.spec_file, {"job.training.batchSize": 16})
    edit_values(one.job_dir.spec_file, {"job.training.epochs": 8})
    report = one.finish()

    told = one.handle.history()
    lost = next(d for d in told.decisions if d.kind == "ended")
    assert (lost.replica, lost.cause) == (victim, "killed")
    back = next(d for d in told.decisions if d.kind == "relaunched")
    assert (back.replacement, back.cost_seconds) == (
        lost.replacement,
        report.relaunches[0].seconds,
    )
    kinds = {d.kind for d in told.decisions}
    assert {"grown", "master", "checkpoint", "joined", "left"} <= kinds
    # The next master took over who was there: nobody was missed, nobody came twice.
    joined = [d.replica for d in told.decisions if d.kind == "joined"]
    assert len(joined) == len(set(joined))
    assert not [d for d in told.decisions if "fewer than worker.min" in d.text]
    trained = [s for s in told.samples if s.state == "running"][1:-1]
    assert all(s.workers_running for s in trained)
    assert told.samples[-1].records_done == report.records
    # A new master lists a PS before it has heard of it.
    heard = [s.ps["0"] for s in told.samples if "0" in s.ps and s.ps["0"].memory_bytes]
    last_ps = heard[-1]
    assert last_ps.calls > 0
    assert last_ps.received_bytes > 0
    assert last_ps.parameter_bytes > 0
    assert sum(told.samples[-1].goodput_seconds.values()) == pytest.approx(
        sum(report.goodput_seconds.values()), rel=0.01
    )

    code, text, _ = explained(one, capsys)
    assert code == 0
    for part in (f"killed; replaced by {lost.replacement}", "worker.replicas: 2 -> 3"):
        assert part in " ".join(text.split())
    code, text, _ = explained(one, capsys, victim, "--json")
    assert [d["kind"] for d in json.loads(text)["decisions"]] == [
        "joined",
        "ended",
        "relaunched",
    ]
    code, _, error = explained(one, capsys, "worker-77")
    assert code == 2
    assert "knows no replica 'worker-77'" in error
    assert victim in error

    (sent,) = posted
    assert (sent["name"], sent["namespace"], sent["state"]) == (
        "explained",
        "local",
        "succeeded",
    )
    assert sent["report"]["records"] == report.records
    state, _, document = out.read_text().partition(" ")
    assert state == "succeeded"
    assert json.loads(document)["records"] == report.records


def test_a_job_that_fails_before_it_begins_is_told_as_well(job, receiver, tmp_path):
    url, posted = receiver
    one = job(
        "hopeless",
        checkpoint={"initFrom": str(tmp_path / "no-such-checkpoint")},
        onEnd={"webhook": url},
    )
    assert one.wait_for_exit() != 0
    (sent,) = posted
    assert sent["state"] == "failed"
    assert "no-such-checkpoint" in sent["message"]


@pytest.mark.soak
def test_a_job_whose_end_nobody_hears_has_succeeded_all_the_same(job):
    one = job(
        "unheard",
        training={"epochs": 2},
        onEnd={"webhook": "http://127.0.0.1:1/", "command": ["/no/such/program"]},
    )
    one.finish()
    log = one.log_text("master", 0)
    assert "job.onEnd.webhook: 127.0.0.1:1 cannot be reached" in log
    assert "job.onEnd.command: '/no/such/program' cannot be run" in log


def told(version, **more):
    fields = {"state": "running", "time": 100.0 + version, "last_loss": 1.0, **more}
    return JobStatus(
        name="rewound",
        type="train",
        strategy="parameterServer",
        started=0.0,
        master_generation=1,
        workers_wanted=1,
        progress=Progress(version=version),
        **fields,
    )


def test_tensorboard_drops_what_a_rewind_or_a_restart_made_void(tmp_path):
    async def story():
        first = Scalars(tmp_path, now=100.0, generation=1)
        for version in (10, 20, 30):
            first.sampled(told(version))
        back = {"rewinds": 1, "checkpoint_version": 20, "last_loss": 0.5}
        for version in (20, 25, 35):
            first.sampled(told(version, **back))
        assert await first.file.write()
        second = Scalars(tmp_path, now=200.0, generation=2)
        second.sampled(told(0, **back))  # the PS have not told their version yet
        second.sampled(told(30, **{**back, "last_loss": 0.25}))
        assert await second.file.write()

    asyncio.run(story())
    losses = EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [(one.step, one.value) for one in losses] == [
        (10, 1.0),
        (20, 0.5),
        (25, 0.5),
        (30, 0.25),
    ]


@pytest.mark.soak
def test_tensorboard_reads_and_serves_what_the_master_wrote(job, tensorboard):
    one = job("scalars", training={"epochs": 20}, evaluation={"everySteps": 50})
    report = one.finish()
    folder = one.job_dir.tensorboard_dir
    reader = EventAccumulator(str(folder)).Reload()
    assert set(reader.Tags()["scalars"]) >= TAGS
    last = reader.Scalars("evaluation/accuracy")[-1]
    assert last.step == report.evaluations[-1].version
    assert last.value == pytest.approx(report.metrics["accuracy"])
    assert reader.Scalars("loss")[-1].value == pytest.approx(report.last_loss)

    address = tensorboard(folder)
    end = time.monotonic() + 60.0  # a bound for a hung server, no claim
    shown = {}
    while not any(set(tags) >= TAGS for tags in shown.values()):
        assert time.monotonic() < end, f"tensorboard shows {shown}"
        time.sleep(0.2)
        shown = get(f"{address}/data/plugin/scalars/tags")
    (run,) = shown
    query = urllib.parse.urlencode({"run": run, "tag": "evaluation/accuracy"})
    points = get(f"{address}/data/plugin/scalars/scalars?{query}")
    _, step, value = points[-1]
    assert step == report.evaluations[-1].version
    assert value == pytest.approx(report.metrics["accuracy"])
