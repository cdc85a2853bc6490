"""When rounds are due, and sums of metric states."""

import numpy as np
import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import UserCodeError
from elasticdl.job.spec.job import EvaluationSpec
from elasticdl.master.model.evaluation import (
    EPOCH_END,
    STEPS,
    TIME,
    EvaluationSchedule,
    MetricSums,
    cut,
    in_words,
)
from elasticdl.tensor import codec


def schedule(epochs_done: int = 0, **fields: object) -> EvaluationSchedule:
    spec = EvaluationSpec.model_validate({"at_epoch_end": False, **fields})
    return EvaluationSchedule(
        spec, job_started=100.0, now=100.0, epochs_done=epochs_done
    )


def test_nothing_is_due_without_a_reason() -> None:
    assert schedule().due(version=10**6, epochs_done=9, now=1e9) is None


def test_steps_stay_on_their_grid_when_a_round_comes_late() -> None:
    plan = schedule(every_steps=100)
    assert plan.due(version=99, epochs_done=0, now=100.0) is None
    assert plan.due(version=130, epochs_done=0, now=100.0) == STEPS
    plan.opened(version=130, epochs_done=0, now=100.0)
    assert plan.due(version=199, epochs_done=0, now=100.0) is None
    assert plan.due(version=200, epochs_done=0, now=100.0) == STEPS


def test_an_edited_interval_goes_by_its_own_multiples() -> None:
    plan = schedule(every_steps=100)
    plan.opened(version=1001, epochs_done=0, now=100.0)
    plan.take_spec(EvaluationSpec(at_epoch_end=False, every_steps=130))
    assert plan.due(version=1039, epochs_done=0, now=100.0) is None
    assert plan.due(version=1040, epochs_done=0, now=100.0) == STEPS
    plan.opened(version=1041, epochs_done=0, now=100.0)
    assert plan.due(version=1169, epochs_done=0, now=100.0) is None
    assert plan.due(version=1170, epochs_done=0, now=100.0) == STEPS


def test_time_counts_from_the_start_delay_and_from_the_last_round() -> None:
    plan = schedule(every_seconds=10.0, start_delay_seconds=30.0)
    assert plan.next_time() == 130.0
    assert plan.due(version=1, epochs_done=0, now=129.0) is None
    assert plan.due(version=1, epochs_done=0, now=130.0) == TIME
    plan.opened(version=1, epochs_done=0, now=135.0)
    assert plan.next_time() == 145.0


def test_the_start_delay_is_waited_for_once_not_at_each_start_of_a_master() -> None:
    spec = EvaluationSpec(every_seconds=10.0, start_delay_seconds=3600.0)
    again = EvaluationSchedule(spec, job_started=100.0, now=7000.0)
    assert again.next_time() == 7010.0


def test_each_epoch_end_is_due_once_also_after_a_restart() -> None:
    plan = schedule(at_epoch_end=True)
    assert plan.due(version=1, epochs_done=0, now=100.0) is None
    assert plan.due(version=1, epochs_done=1, now=100.0) == EPOCH_END
    plan.opened(version=1, epochs_done=1, now=100.0)
    assert plan.due(version=1, epochs_done=1, now=100.0) is None
    again = schedule(at_epoch_end=True, epochs_done=1)
    assert again.due(version=1, epochs_done=1, now=100.0) is None


def test_what_is_trained_again_after_a_rewind_is_evaluated_again() -> None:
    plan = schedule(at_epoch_end=True, every_steps=10)
    plan.opened(version=50, epochs_done=2, now=100.0)
    plan.rewound(version=25, epochs_done=1)
    assert plan.due(version=25, epochs_done=1, now=100.0) is None
    assert plan.due(version=30, epochs_done=1, now=100.0) == STEPS
    assert plan.due(version=26, epochs_done=2, now=100.0) == EPOCH_END


def state(**arrays: object) -> bytes:
    named = {name: np.asarray(value) for name, value in arrays.items()}
    return codec.join(codec.encode(b"", named))


def test_metric_states_are_added_exactly() -> None:
    sums = MetricSums()
    sums.add(state(total=np.float32(1.5), count=np.int64(2)), records=2)
    sums.add(state(total=np.float32(2.5), count=np.int64(3)), records=3)
    sums.add(b"", records=1)
    merged = codec.decode(sums.state()).tensors
    assert float(merged["total"]) == 4.0
    assert int(merged["count"]) == 5
    assert sums.records == 6


def test_counters_of_metrics_lose_no_unit_above_two_to_the_24() -> None:
    sums = MetricSums()
    sums.add(state(count=np.float32(2**24), hits=np.int32(2**31 - 1)), records=1)
    for _ in range(1001):
        sums.add(state(count=np.float32(1), hits=np.int32(1)), records=1)
    merged = codec.decode(sums.state()).tensors
    assert float(merged["count"]) == 2**24 + 1001
    assert int(merged["hits"]) == 2**31 - 1 + 1001


def test_a_metric_that_changes_its_shape_is_the_users_mistake() -> None:
    sums = MetricSums()
    sums.add(state(total=[1.0]), records=1)
    with pytest.raises(UserCodeError, match="total"):
        sums.add(state(total=[1.0, 2.0]), records=1)


def test_ranges_cover_each_shard_without_crossing() -> None:
    ranges = list(cut([Shard("a", 0, 5), Shard("b", 2, 4)], 2))
    assert ranges == [
        Shard("a", 0, 2),
        Shard("a", 2, 4),
        Shard("a", 4, 5),
        Shard("b", 2, 4),
    ]


def test_metrics_are_short_in_words() -> None:
    assert in_words({"accuracy": 0.97812345}) == "{'accuracy': 0.978123}"


def test_epochs_that_are_evaluated_together_are_told(caplog) -> None:
    """Callbacks count evaluations: with `fit` there is one an epoch."""
    plan = schedule(at_epoch_end=True)
    plan.opened(version=1, epochs_done=1, now=100.0)
    assert not caplog.text
    plan.opened(version=3, epochs_done=3, now=101.0)
    assert "2 epochs are evaluated together, the last of them is epoch 3" in caplog.text
