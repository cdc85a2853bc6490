"""The sentence for each thing that happens, and its parts."""

import inspect

import pytest
from elasticdl.job import words
from elasticdl.job.status import EvaluationResult, Relaunch
from elasticdl.master import happenings
from elasticdl.master.happenings import Happening
from elasticdl.master.telling.sentences import decisions_of

LOST = Relaunch(
    replica="worker-1",
    reason="killed",
    cause="killed",
    replacement="worker-3",
    time=5.0,
    detail="SIGKILL\n",
)
GIVEN_UP = LOST.model_copy(update={"replacement": "", "why_not": "too many restarts"})
RESULT = EvaluationResult(
    version=400,
    metrics={"loss": 0.25, "accuracy": 0.97812},
    records=360,
    seconds=0.4,
    time=5.0,
)
TOLD: list[tuple[Happening, list[tuple[str, str, str]]]] = [
    (
        happenings.ReplicaWaits(time=5.0, replica="ps-0", reason="Unschedulable: full"),
        [("pending", "Unschedulable", "ps-0 waits: Unschedulable: full")],
    ),
    (
        happenings.ReplicaJoined(time=5.0, replica="ps-0", role="ps", waited=1.25),
        [("joined", "", "ps-0 runs after 1.2 s of waiting")],
    ),
    (
        happenings.ReplicaLeft(time=5.0, replica="worker-1", reason="scaled down"),
        [("left", "scaled down", "worker-1 left: scaled down")],
    ),
    (
        happenings.ReplicaEnded(time=5.0, record=LOST),
        [("ended", "killed", "worker-1 ended: killed; replaced by worker-3")],
    ),
    (
        happenings.ReplicaEnded(time=5.0, record=GIVEN_UP),
        [
            ("ended", "killed", "worker-1 ended: killed; not replaced"),
            ("notReplaced", "killed", "worker-1 is not replaced: too many restarts"),
        ],
    ),
    (
        happenings.ReplacementWorks(
            time=5.0, record=LOST.model_copy(update={"seconds": 2.5})
        ),
        [
            (
                "relaunched",
                "killed",
                "worker-3 works 2.5 s after the end of worker-1 (killed)",
            )
        ],
    ),
    (
        happenings.JobEntered(time=5.0, state=words.JobState.RUNNING),
        [("state", "running", "job digits is running: few workers")],
    ),
    (
        happenings.JobEntered(time=5.0, state=words.JobState.FAILED),
        [("state", "failed", "job digits failed: few workers")],
    ),
    (
        happenings.JobEdited(time=5.0, path="worker.replicas", old=2, new=4),
        [("grown", "worker.replicas: 2 -> 4", "changed: worker.replicas: 2 -> 4")],
    ),
    (
        happenings.JobEdited(time=5.0, path="worker.replicas", old=4, new=1),
        [("shrunk", "worker.replicas: 4 -> 1", "changed: worker.replicas: 4 -> 1")],
    ),
    (
        happenings.JobEdited(time=5.0, path="training.epochs", old=3, new=5),
        [("edited", "training.epochs: 3 -> 5", "changed: training.epochs: 3 -> 5")],
    ),
    (
        happenings.EditRefused(time=5.0, text="refused: ps", change="ps.replicas"),
        [("refused", "ps.replicas", "refused: ps")],
    ),
    (
        happenings.MasterTookOver(time=5.0, generation=3),
        [("master", "", "master generation 3 goes on")],
    ),
    (
        happenings.AttentionNeeded(time=5.0, message="few workers"),
        [("attention", "", "few workers")],
    ),
    (
        happenings.CheckpointWritten(time=5.0, version=40, seconds=0.5),
        [("checkpoint", "", "checkpoint of version 40 is complete")],
    ),
    (
        happenings.CheckpointFailed(time=5.0, problem="no space"),
        [("checkpointFailed", "", "no space")],
    ),
    (
        happenings.WentBack(time=5.0, cause="ps-1 oomKilled", version=40),
        [
            (
                "rewound",
                "ps-1 oomKilled",
                "model and data went back to the checkpoint of version 40",
            )
        ],
    ),
    (
        happenings.RoundWorks(time=5.0, number=4, seconds=2.53),
        [("round", "", "round 4 made its first step 2.5 s after the last one")],
    ),
    (
        happenings.RoundBegan(
            time=5.0, number=4, members=("worker-1", "worker-2"), why="worker-0 ended"
        ),
        [
            (
                "round",
                "worker-0 ended",
                "round 4 of worker-1, worker-2: worker-1 leads; worker-0 ended",
            )
        ],
    ),
    (
        happenings.WentBack(time=5.0, cause="ps-1 hung", version=None),
        [
            (
                "rewound",
                "ps-1 hung",
                "model and data went back to the job's beginning",
            )
        ],
    ),
    (
        happenings.Evaluated(time=5.0, result=RESULT),
        [("evaluated", "", "evaluation at version 400: accuracy 0.9781, loss 0.25")],
    ),
    (
        happenings.SizeGranted(
            time=5.0, before=4, workers=6, why="grew into free room"
        ),
        [
            (
                "grown",
                "granted workers: 4 -> 6",
                "granted workers: 4 -> 6: grew into free room",
            )
        ],
    ),
    (
        happenings.GrantEnded(time=5.0, before=6, workers=4),
        [
            (
                "shrunk",
                "granted workers: 6 -> 4",
                "granted workers: 6 -> 4: no grant is in force, worker.replicas is",
            )
        ],
    ),
    (
        happenings.GrantRefused(time=5.0, text="grants nothing: got 'x'"),
        [("grantRefused", "", "grants nothing: got 'x'")],
    ),
    # Its coming, or its leaving, is told.
    (
        happenings.ReplicaWanted(
            time=5.0, replica="worker-4", role="worker", why=words.ChangeCause.GROWN
        ),
        [],
    ),
    (happenings.ReplicaWorks(time=5.0, replica="worker-4"), []),
    (
        happenings.ReplicaDismissed(
            time=5.0, replica="worker-4", role="worker", why=words.ChangeCause.SHRUNK
        ),
        [],
    ),
]


def test_each_happening_is_told_here() -> None:
    known = {
        of
        for _, of in inspect.getmembers(happenings, inspect.isclass)
        if issubclass(of, Happening) and of is not Happening
    }
    assert {type(one) for one, _ in TOLD} == known
    kinds = {kind for _, told in TOLD for kind, _, _ in told}
    assert kinds == {str(kind) for kind in words.HappeningKind}


@pytest.mark.parametrize(("happening", "told"), TOLD)
def test_a_happening_has_this_sentence(
    happening: Happening, told: list[tuple[str, str, str]]
) -> None:
    found = decisions_of(happening, job="digits", message="few workers")
    assert [(one.kind, one.cause, one.text) for one in found] == told
    assert all(one.time in (5.0, 7.5) for one in found)


def test_costs_and_last_words_are_apart() -> None:
    (works,) = decisions_of(
        happenings.ReplacementWorks(
            time=5.0, record=LOST.model_copy(update={"seconds": 2.5})
        ),
        job="digits",
    )
    assert (works.time, works.cost_seconds) == (7.5, 2.5)
    (ended,) = decisions_of(
        happenings.ReplicaEnded(time=5.0, record=LOST), job="digits"
    )
    assert (ended.detail, ended.end_cause) == ("SIGKILL", words.EndCause.KILLED)
    (written,) = decisions_of(
        happenings.CheckpointWritten(time=5.0, version=40, seconds=0.5), job="digits"
    )
    assert written.cost_seconds == 0.5
