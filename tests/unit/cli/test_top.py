"""`elasticdl top`: the rules behind its figures, and one screen as text."""

from __future__ import annotations

import math
from typing import Any

import pytest
from elasticdl.client import Condition, JobView
from elasticdl.client.usage import ClusterUsage, Machine
from elasticdl.job.decision import Decision
from elasticdl.job.history import History, HistorySample, PsSample
from elasticdl.job.status import (
    EvaluationResult,
    GroupOut,
    GroupStatus,
    JobStatus,
    Progress,
    Relaunch,
    ReplicaStatus,
)
from elasticdl.job.words import JobState, OutCause
from elasticdl.kube.amounts import Amounts
from elasticdl.views.top import model as top_model
from elasticdl.views.top import ps as top_ps
from elasticdl.views.top.change import last_change
from elasticdl.views.top.jobs import jobs_view
from elasticdl.views.top.view import Screen, top_view
from rich.console import Console, RenderableType
from rich.text import Text

NOW = 10_000.0
UNSCHEDULABLE = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu"
PREEMPTED = Relaunch(
    replica="worker-1",
    reason="preempted",
    replacement="worker-3",
    time=NOW - 125,
    seconds=12.3,
)
MACHINE = Machine(cpus=2, busy=0.87, memory_bytes=24 << 30, used_bytes=11 << 30)
CLUSTER = ClusterUsage(
    nodes=3,
    there=Amounts(cpu=24.0),
    held={"serving": Amounts(8.0), "training": Amounts(6.0), "other": Amounts(2.5)},
)


ENDED = Decision(
    time=PREEMPTED.time,
    kind="ended",
    replica="worker-1",
    cause="preempted",
    replacement="worker-3",
    text="worker-1 ended: preempted; replaced by worker-3",
)
WORKS = ENDED.model_copy(
    update={
        "kind": "relaunched",
        "time": PREEMPTED.time + 12,
        "cost_seconds": 12.0,
        "text": "worker-3 works 12.0 s after the end of worker-1 (preempted)",
    }
)


def replica(name: str, state: str = "running", **fields: Any) -> ReplicaStatus:
    role, _, index = name.partition("-")
    known = {"generation": 1, "since": NOW - 300, **fields}
    return ReplicaStatus(name=name, role=role, index=int(index), state=state, **known)


def worker(number: int, step_seconds: float, **fields: Any) -> ReplicaStatus:
    fields = {"phase": "train", "step": 31, **fields}
    return replica(f"worker-{number}", step_seconds=step_seconds, **fields)


def status(**fields: Any) -> JobStatus:
    known: dict[str, Any] = {
        "name": "digits",
        "type": "train",
        "strategy": "parameterServer",
        "state": JobState.RUNNING,
        "started": NOW - 725,
        "time": NOW,
        "master_generation": 1,
        "workers_wanted": 4,
        "workers_min": 1,
        "workers_max": 8,
        "progress": Progress(
            epoch=2,
            epochs=10,
            records_per_epoch=1437,
            records_done=4155,
            tasks_done=33,
            tasks_total=120,
            tasks_leased=3,
            tasks_waiting=1,
            replayed_records=256,
            steps=131,
            records_per_second=412.0,
            eta_seconds=725.0,
            epoch_eta_seconds=41.0,
        ),
        "replicas": [
            worker(0, 0.031, loss=0.43, memory_bytes=612 << 20),
            worker(2, 0.033, loss=0.41, memory_bytes=612 << 20),
            worker(3, 0.072, loss=0.51, memory_bytes=612 << 20),
            replica("worker-4", "pending", reason=UNSCHEDULABLE),
            replica("worker-1", "ended", reason="preempted"),
            replica("ps-0", version=400, memory_bytes=300 << 20),
            replica("ps-1", version=399, memory_bytes=460 << 20),
        ],
        "relaunches": [PREEMPTED],
        "happened": [ENDED, WORKS],
        "last_loss": 0.4321,
        "last_evaluation": evaluation(9),
        "goodput_seconds": {
            "train": 710.0,
            "waitPs": 120.0,
            "start": 90.0,
            "waitData": 30.0,
            "evaluate": 20.0,
            "preempted": 41.0,
        },
        "checkpoint_version": 390,
        "checkpoint_age_seconds": 31.0,
        "checkpoint_seconds": 1.2,
    }
    return JobStatus(**{**known, **fields})


def evaluation(number: int) -> EvaluationResult:
    return EvaluationResult(
        version=40 * number,
        metrics={"loss": 1.0 - number / 10, "accuracy": number / 10},
        records=360,
        seconds=0.4,
        time=NOW - 600 + 60 * number,
    )


def ps_sample(seconds: float, *, busy: float) -> PsSample:
    return PsSample(
        state="running",
        memory_limit_bytes=512 << 20,
        parameter_bytes=12 << 20,
        embedding_rows=10_000,
        calls=round(50 * seconds),
        call_seconds=busy * seconds,
        received_bytes=round(1e6 * busy * seconds),
        sent_bytes=round(3e6 * busy * seconds),
        pushes=round(20 * seconds),
        staleness_sum=30 * seconds,
    )


def sample(seconds: float, **fields: Any) -> HistorySample:
    known: dict[str, Any] = {
        "time": NOW - 600 + seconds,
        "state": "running",
        "workers_wanted": 4,
        "workers_min": 1,
        "workers_max": 8,
        "workers_running": 3,
        "workers_pending": 1,
        "loss": 2.3 * math.exp(-seconds / 200),
        "preemptions": 2,
        "ps": {
            "0": ps_sample(seconds, busy=0.1),
            "1": ps_sample(seconds, busy=0.5),
        },
    }
    return HistorySample(**{**known, **fields})


HISTORY = History(
    samples=[sample(5.0 * number) for number in range(120)],
    evaluations=[evaluation(number) for number in range(9)],
)


# -- the rules --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ((0.1, 0.1, 0.1, 0.16), {"worker-3"}),
        ((0.1, 0.1, 0.1, 0.15), set()),
        ((0.1, 0.2), {"worker-1"}),  # of two one can be the slow one
        ((0.1,), set()),
        ((0.1, 0.1, 0.2, 0.2), {"worker-2", "worker-3"}),
        ((0.0, 0.1, 0.1), set()),  # 0 is not known
    ],
)
def test_a_straggler_takes_over_half_as_long_again_as_the_median(
    seconds: tuple[float, ...], slow: set[str]
) -> None:
    workers = [worker(number, each) for number, each in enumerate(seconds)]
    assert top_model.stragglers(workers) == slow


def test_who_does_not_train_is_no_straggler() -> None:
    others = [worker(0, 0.1), worker(1, 0.1)]
    assert not top_model.stragglers([*others, worker(2, 9.0, phase="evaluate")])
    assert not top_model.stragglers([*others, worker(2, 9.0, state="draining")])


def test_a_hot_ps_moves_over_half_as_much_again_as_the_mean() -> None:
    assert top_ps.hot_shards({"0": 1e6, "1": 5e6}) == {"1"}
    assert not top_ps.hot_shards({"0": 4e6, "1": 5e6})
    assert not top_ps.hot_shards({"0": 1e3, "1": 9e4}), "idle ones are not hot"
    assert not top_ps.hot_shards({"0": 9e9})


def test_what_a_ps_does_is_a_mean_over_the_last_samples() -> None:
    samples = [sample(0.0), sample(100.0), sample(120.0), sample(130.0)]
    first, second = top_model.top(status(), History(samples), now=NOW).ps_rows
    assert first.load is not None
    assert second.load is not None
    assert first.load.latency_seconds == pytest.approx(0.1 / 50)
    assert second.load.bytes_per_second == pytest.approx(2e6)
    assert second.load.staleness == pytest.approx(1.5)
    assert second.share == pytest.approx(5 / 6)
    assert (first.hot, second.hot) == (False, True)


def test_a_ps_that_was_started_again_counts_from_its_start() -> None:
    again = sample(130.0, ps={"0": ps_sample(4.0, busy=0.5)})
    begun = sample(110.0, ps={"0": ps_sample(110.0, busy=0.5)})
    row, other = top_model.top(status(), History([begun, again]), now=NOW).ps_rows
    assert row.load is not None
    assert row.load.bytes_per_second == pytest.approx(4e6 * 2.0 / 20)
    assert row.load.latency_seconds == pytest.approx(0.01)
    assert other.load is None, "nothing is known of one that no sample has"


def test_a_restarted_master_knows_nothing_of_the_ps_at_first() -> None:
    silent = {"0": PsSample(state="running"), "1": PsSample(state="running")}
    samples = [sample(100.0), sample(120.0), sample(130.0, ps=silent)]
    rows = top_model.top(status(), History(samples), now=NOW).ps_rows
    assert [row.parameter_bytes for row in rows] == [12 << 20, 12 << 20]
    assert rows[1].load is not None
    assert rows[1].load.bytes_per_second == pytest.approx(2e6)


def test_without_a_history_the_rest_is_known() -> None:
    shown = top_model.top(status(), History(), now=NOW)
    assert shown.losses == [0.4321]
    assert shown.trend == [0.9]
    assert [row.load for row in shown.ps_rows] == [None, None]
    assert shown.preemptions.count == 1
    assert shown.preemptions.lost_seconds == 41.0


def test_the_seconds_of_workers_are_shared_out_training_first() -> None:
    causes = top_model.goodput({"start": 20.0, "train": 30.0, "waitPs": 50.0, "x": 0.0})
    assert [(one.name, one.share) for one in causes] == [
        ("training", 0.3),
        ("waiting for PS", 0.5),
        ("starting", 0.2),
    ]
    assert not top_model.goodput({})


def test_the_last_change_is_a_loss_with_what_it_cost() -> None:
    change = last_change([ENDED, WORKS], now=NOW)
    assert change is not None
    assert change.text == "worker-1 preempted, worker-3 in its place"
    assert (change.cost, change.open) == ("cost 12 s", False)
    change = last_change([ENDED], now=NOW)
    assert change is not None
    assert (change.cost, change.open) == ("cost 2 min 05 s so far", True)
    left = Decision(time=NOW - 1, kind="left", replica="worker-3")
    change = last_change([ENDED, left], now=NOW)
    assert change is not None
    assert (change.cost, change.open) == ("", False)
    assert last_change([], now=NOW) is None


def test_the_last_change_may_be_another_size() -> None:
    decisions = [
        Decision(time=NOW - 60, kind="grown", cause="worker.replicas 2 -> 4"),
        Decision(time=NOW - 58, kind="joined", replica="worker-4"),
        Decision(time=NOW - 51, kind="joined", replica="worker-5"),
        Decision(time=NOW - 50, kind="checkpoint"),
        Decision(time=NOW - 40, kind="state", cause="paused"),
        Decision(time=NOW - 5, kind="joined", replica="worker-6"),
    ]
    change = last_change([ENDED, WORKS, *decisions], now=NOW)
    assert change is not None
    assert change.text == "worker.replicas 2 -> 4"
    assert (change.ago_seconds, change.cost) == (60.0, "there after 9.0 s")
    lost = ENDED.model_copy(update={"time": NOW - 3})
    change = last_change([*decisions, lost], now=NOW)
    assert change is not None
    assert change.ago_seconds == 3.0


def test_what_a_status_knows_before_the_history_is_told_once() -> None:
    history = History(decisions=[ENDED])
    shown = top_model.top(status(happened=[ENDED, WORKS]), history, now=NOW)
    assert [one.kind for one in shown.events] == ["relaunched", "ended"]


def test_a_loss_that_is_not_finite_is_not_drawn() -> None:
    shown = top_model.top(
        status(last_loss=math.nan), History([sample(0.0, loss=None)]), now=NOW
    )
    assert shown.losses == []


# -- the screen -------------------------------------------------------------------


def lines(renderable: RenderableType, width: int = 80) -> list[str]:
    console = Console(width=width, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def drawn(
    width: int = 80,
    height: int | None = 23,
    *,
    usage: Machine | ClusterUsage | None = MACHINE,
    notes: tuple[Text, ...] = (),
    history: History = HISTORY,
    **fields: Any,
) -> list[str]:
    shown = top_model.top(status(**fields), history, now=NOW)
    view = top_view(shown, usage, Screen(width, height), notes=notes)
    return lines(view, width)


SMALL = """\
digits  train, parameterServer  running for 12 min 05 s
progress   epoch 3/10  ███████··················· 28 %  12 min left (epoch 41 s)
speed      412 records/s, step 131, loss 0.4321 ███▇▇▇▇▆▆▆▆▅▅▅▅▅▄▄▄▄▃▃▃▃▂▂▂▂▁▁▁▂
evaluation accuracy 0.9, loss 0.1 at version 360 ▁▂▃▃▄▅▆▆▇█
tasks      33 of 120 done, 3 leased, 1 waiting; 256 records replayed
workers    3 running of 4 wanted (min 1, max 8), 1 pending, 1 straggler
pending    Unschedulable: 0/3 nodes are available: 3 Insufficient cpu
goodput    ████████▓▒· █ training 70% ▓ waiting for PS 12% ▒ starting 9%
change     2 min 05 s ago, cost 12 s: worker-1 preempted, worker-3 in its place
preempted  2 times, last 2 min 05 s ago; 41 s of worker time lost to it
checkpoint version 390, 31 s ago, took 1.2 s
cluster    ██▓▓▒··· █ serving 8 ▓ training 6 ▒ other 2.5 · free 7.5 of 24 CPUs

WORKER    STATE      STEP TIME       LOSS  MEMORY   DOING
worker-0  running    ███····· 31 ms  0.43  612 MiB  training
worker-2  running    ███····· 33 ms  0.41  612 MiB  training
worker-3  straggler  ████████ 72 ms  0.51  612 MiB  training
worker-4  pending                                   Unschedulable: 0/3 nodes ar…

PS    STATE    LOAD          CALL    STALE  BYTES   ROWS    MEMORY
ps-0  running  █······· 17%  2.0 ms  1.5    12 MiB  10 000  300 MiB (59%)
ps-1  hot      ██████·· 83%  10 ms   1.5    12 MiB  10 000  460 MiB (90%)
"""
ALL = """\
1 of 3 jobs running, 1 pending · workers 3 of 4, 1 pending · 412 records/s · me…
cluster    ██▓▓▒··· █ serving 8 ▓ training 6 ▒ other 2.5 · free 7.5 of 24 CPUs

NAMESPACE  JOB     STATE        WORKERS       LEFT         PROGRESS
           late    pending                                 no node, for 1 min 0…
ml         digits  running      3/4, 1 waits  12 min left  █·····  28 % epoch 3…
           done    interrupted                             its launcher is gone
"""


def test_all_ten_answers_are_on_a_small_terminal() -> None:
    assert drawn(usage=CLUSTER) == SMALL.splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 133, 200])
@pytest.mark.parametrize("height", [1, 4, 9, 13, 17, 23, 60])
def test_no_frame_is_larger_than_its_screen(width: int, height: int) -> None:
    shown = drawn(width, height, usage=CLUSTER, name="ein-名前" * 9)
    assert len(shown) <= height
    assert all(Text(line).cell_len <= width for line in shown)
    assert shown[0].startswith("ein-名前")


def test_what_matters_least_goes_first() -> None:
    heads = {line.split()[0] for line in drawn(80, 8)}
    assert {"digits", "progress", "workers", "pending", "goodput"} <= heads
    assert not {"machine", "preempted", "speed"} & heads
    assert "PS" in {line.split()[0] for line in drawn(80, 23) if line}


def test_rows_that_do_not_fit_are_those_that_need_no_look() -> None:
    many = [worker(number, 0.1, loss=0.5) for number in range(40)]
    many[33] = worker(33, 0.9, loss=0.5)
    shown = drawn(80, 23, replicas=many)
    assert len(shown) == 23
    assert any("worker-33 " in line and "straggler" in line for line in shown)
    assert shown[-1].startswith("... 31 more")


def test_a_group_has_its_round_its_cost_and_who_is_waited_for() -> None:
    group = GroupStatus(
        round=4,
        members=["worker-2", "worker-0"],
        level=True,
        why="worker-1 ended",
        since=NOW - 9.0,
        change_seconds=2.5,
        changes_seconds=4.0,
        last="worker-0",
        out=[GroupOut(name="worker-3", cause=OutCause.JOINING)],
    )
    members = [
        worker(n, 0.03, wait_seconds=wait, step_bytes=2048)
        for n, wait in ((0, 0.001), (2, 0.02))
    ]
    told = drawn(100, 40, group=group, replicas=members)
    for line in (
        "round      4 of worker-2 (leads), worker-0: worker-1 ended",
        "           the change to it cost 2.5 s, all changes 4.0 s; the others wait "
        "for worker-0",
        "out        worker-3: joining with the next round",
    ):
        assert line in told, told
    rows = [" ".join(line.split()) for line in told if line.startswith("worker-")]
    assert [row.split(" ")[:2] for row in rows] == [
        ["worker-0", "straggler"],
        ["worker-2", "running"],
    ]
    assert "1.0 ms 2 KiB training" in rows[0]


def test_what_is_wrong_stands_below_the_head() -> None:
    away = Text("its master does not answer now")
    shown = drawn(80, 6, notes=(away,), message="no space left on device")
    assert shown[1:3] == ["! no space left on device", "its master does not answer now"]


def test_a_job_that_has_just_begun_has_little_to_show() -> None:
    shown = drawn(
        state=JobState.STARTING,
        progress=Progress(),
        replicas=[replica("worker-0", "launched")],
        relaunches=[],
        happened=[],
        last_loss=None,
        last_evaluation=None,
        goodput_seconds={},
        checkpoint_version=None,
        history=History(),
    )
    assert shown == [
        "digits  train, parameterServer  starting, begun 12 min 05 s ago",
        "workers    0 running of 4 wanted (min 1, max 8), 1 pending",
        "change     nobody came or went since the job began",
        "preempted  never",
        "checkpoint none yet",
        "machine    ██████·· 87% of 2 CPUs; memory 11.0 of 24.0 GiB",
        "",
        "WORKER    STATE     DOING",
        "worker-0  launched  for 5 min 00 s",
    ]


def test_a_cluster_that_may_not_be_looked_at_says_which_right_it_takes() -> None:
    usage = ClusterUsage(unknown="not known: it takes the right to list nodes")
    assert "cluster    not known: it takes the right to list nodes" in drawn(
        usage=usage
    )


def test_all_jobs_have_a_row_and_totals() -> None:
    views = [
        JobView("done", Condition.INTERRUPTED, note="its launcher is gone"),
        JobView("digits", Condition.RUNNING, status=status(), place="namespace ml"),
        JobView("late", Condition.PENDING, note="no node", submitted=NOW - 65),
    ]
    shown = jobs_view(views, CLUSTER, Screen(80, 23), now=NOW)
    assert lines(shown) == ALL.splitlines()


def test_where_there_is_room_the_newest_events_are_told() -> None:
    told = [
        Decision(time=NOW - 60, kind="ended", text="worker-1 ended: preempted"),
        Decision(time=NOW - 50, kind="checkpoint", text="version 390 is complete"),
        Decision(time=NOW - 40, kind="edited", text="changed: paused no -> yes"),
    ]
    history = History(samples=HISTORY.samples, decisions=told)
    assert "preempted\n" not in "\n".join(drawn(history=history))
    large = drawn(120, 40, history=history)
    assert [line[10:] for line in large[-2:]] == [
        "changed: paused no -> yes",
        "worker-1 ended: preempted",
    ]
