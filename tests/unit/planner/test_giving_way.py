"""Who gives way to whom: pods that wait, floors, ranks, and who leaves."""

from dataclasses import replace
from itertools import pairwise

from elasticdl.job.names import Role
from elasticdl.planner.memory import Memory
from elasticdl.planner.view import Holder, Pod, Settings, Template

from tests.unit.planner.build import (
    HIGH,
    LOW,
    NOW,
    cluster,
    cpus,
    job,
    leave,
    made,
    node,
    serving,
    sizes,
    why,
    worker,
    workers,
)


def test_a_pod_that_waits_gets_its_room_before_workers_grow() -> None:
    one = job("a", 1, 9, 1)
    view = cluster(node("n", 4), one, workers(one, n=1), serving("s", 2))
    assert sizes(made(view)) == {"a": 2}


def test_room_for_a_large_pod_is_made_on_one_node_by_the_fewest_workers() -> None:
    one = job("a", 1, 9, 6)
    view = cluster(
        *(node("n", 4), node("m", 4), one),
        *(workers(one, n=4, m=2), serving("s", 1, "m"), serving("big", 2)),
    )
    found = made(view)
    assert sizes(found) == {"a": 5}
    assert leave(found, "a") == (5,)  # on m, where one CPU is free already
    assert why(found, "a") == "made room for web/big"


def test_a_pod_that_goes_after_workers_takes_nothing_from_them() -> None:
    one = job("a", 1, 9, 3)
    view = cluster(node("n", 3), one, workers(one, n=3), serving("s", 1, priority=0))
    assert sizes(made(view)) == {"a": 3}


def test_a_pod_that_fits_nowhere_takes_nothing_from_anybody() -> None:
    one = job("a", 1, 9, 3)
    view = cluster(node("n", 3), one, workers(one, n=3), serving("huge", 64))
    assert sizes(made(view)) == {"a": 3}


def test_a_pod_behind_a_gate_asks_for_no_room() -> None:
    one = job("a", 1, 9, 3)
    view = cluster(node("n", 3), one, workers(one, n=3), serving("s", 1, gated=True))
    assert sizes(made(view)) == {"a": 3}


def test_where_the_scheduler_makes_room_nobody_else_has_to() -> None:
    one = job("a", 1, 9, 3)
    going = worker(one, 9, "m", leaving=True)
    view = cluster(
        *(node("n", 3), node("m", 1), one, workers(one, n=3), going),
        serving("s", 1, nominated="m"),
    )
    assert sizes(made(view)) == {"a": 3}


def test_the_lowest_rank_gives_way_first_then_the_largest_share() -> None:
    high = Template(cpus(1), priority=2 * LOW)
    one = job("a", 1, 5, 5, worker=high)
    two, three = job("b", 1, 2, 2), job("c", 1, 3, 3)
    view = cluster(
        *(node("n", 10), one, two, three),
        *(workers(one, n=5), workers(two, n=2), workers(three, n=3)),
        serving("s", 1),
    )
    assert sizes(made(view)) == {"a": 5, "b": 2, "c": 2}


def test_nobody_goes_below_the_floor() -> None:
    one = job("a", 3, 9, 3)
    view = cluster(node("n", 3), one, workers(one, n=3), serving("s", 1))
    assert sizes(made(view)) == {"a": 3}


def test_who_starts_goes_before_those_that_run_as_its_floor() -> None:
    one = job("a", 1, 9, 3)
    view = cluster(
        *(node("n", 1), node("m", 2), one, worker(one, 0, "n"), serving("s", 1)),
        *(worker(one, index, "m", running=False) for index in (1, 2)),
    )
    found = made(view)
    assert sizes(found) == {"a": 2}
    assert leave(found, "a") == (2,)


def test_fairness_takes_nobody_from_the_floor_that_runs_while_others_start() -> None:
    one, two = job("a", 2, 9, 6), job("b", 1, 9, 1)
    view = cluster(
        *(node("n", 2), node("m", 5), one, two),
        *(worker(one, index, "n") for index in (0, 1)),
        *(worker(one, index, "m", running=False) for index in (2, 3, 4, 5)),
        worker(two, 0, "m"),
    )
    found = made(view)
    assert sizes(found) == {"a": 4, "b": 1}
    assert leave(found, "a") == (5, 4)


def test_a_newcomer_gets_its_floor_at_once() -> None:
    one, two = job("a", 1, 9, 8), job("b", 2, 9, None)
    view = cluster(node("n", 8), one, two, workers(one, n=8))
    found = made(view)
    assert sizes(found) == {"a": 4, "b": 2}  # and its fair share is made already
    assert why(found, "a").startswith(("made room", "its share was larger"))


def test_floors_go_by_priority_then_by_arrival() -> None:
    jobs = [
        job("late", 2, 9, None, arrived=2.0),
        job("early", 2, 9, None, arrived=1.0),
        job(
            "high", 2, 9, None, arrived=3.0, worker=Template(cpus(1), priority=LOW * 2)
        ),
    ]
    found = made(cluster(node("n", 4), *jobs))
    assert sizes(found) == {"late": 2, "early": 2, "high": 2}
    waits = "waits for its floor: no node has room for its first workers"
    assert [why(found, one.name) == waits for one in jobs] == [True, False, False]


def test_a_floor_makes_no_room_while_the_jobs_master_has_none() -> None:
    boss = Template(cpus(64), priority=HIGH)
    one, two = job("a", 1, 9, 4), job("b", 2, 9, None, master=boss)
    found = made(cluster(node("n", 4), one, two, workers(one, n=4)))
    assert sizes(found) == {"a": 4, "b": 2}
    assert why(found, "b") == "waits: no node has room for all of its master and PS"


def test_workers_beyond_a_grant_leave_though_they_still_run() -> None:
    one, two = job("a", 1, 9, 2, leave=(1,)), job("b", 1, 9, 1)
    view = cluster(node("n", 4), one, two, workers(one, n=3), workers(two, n=1))
    found = made(view)
    # The room of the third is not free yet: nobody grows into it, nobody else goes.
    assert sizes(found) == {"a": 2, "b": 1}
    assert leave(found, "a") == (1,)
    gone = replace(
        view, pods=tuple(pod for pod in view.pods if pod.name != "a-worker-1")
    )
    assert sizes(made(gone, found.memory)) == {"a": 2, "b": 2}


def test_what_was_asked_counts_before_the_view_has_it() -> None:
    one = job("a", 1, 9, 4)
    view = cluster(node("n", 4), one, workers(one, n=4), serving("s", 1))
    first = made(view)
    again = made(view, first.memory, now=NOW + 0.2)
    assert sizes(first) == sizes(again) == {"a": 3}
    assert leave(first, "a") == leave(again, "a") == (3,)


def test_an_ask_that_nobody_took_is_forgotten_after_a_while() -> None:
    one = job("a", 1, 9, 4)
    waiting = cluster(node("n", 4), one, workers(one, n=4), serving("s", 1))
    calm = cluster(node("n", 4), one, workers(one, n=4))
    first = made(waiting)
    assert sizes(made(calm, first.memory, now=NOW + 5)) == {"a": 3}
    assert sizes(made(calm, first.memory, now=NOW + 15)) == {"a": 4}


def test_room_is_made_once_for_a_worker_that_is_not_there_yet() -> None:
    one, two = job("a", 1, 9, 8), job("b", 2, 3, None, weight=0.5)
    view = cluster(node("n", 8), one, two, workers(one, n=8))
    first = made(view)
    assert sizes(first) == {"a": 5, "b": 2}  # one more for its fair share
    small = serving("s", 1, priority=LOW + 1)  # it comes before the floor of b
    crowded = replace(view, pods=(*view.pods, small))
    assert sizes(made(crowded, first.memory, now=NOW + 0.2)) == {"a": 5, "b": 2}


def test_one_is_named_who_runs_on_a_node_that_does_not_count() -> None:
    one = job("a", 1, 3, 4)
    view = cluster(
        node("n", 2), node("m", 2, cordoned=True), one, workers(one, n=2, m=2)
    )
    assert leave(made(view), "a") == ()  # its master lets one go by the maximum
    less = cluster(
        *(node("n", 2), node("m", 2, cordoned=True)),
        *(replace(one, max=4, tasks_left=3), workers(one, n=2, m=2)),
    )
    assert leave(made(less), "a") == (3,)


def test_a_master_that_waits_belongs_to_its_job() -> None:
    boss = Template(cpus(1), priority=HIGH)
    one, two = job("a", 1, 9, 4), job("b", 1, 1, None, elastic=False, master=boss)
    master = serving("b-master-0", 1, holder=Holder.TRAINING, namespace="ml")
    master = replace(master, job="b", role=Role.MASTER, index=0)
    found = made(cluster(node("n", 4), one, two, workers(one, n=4), master))
    assert sizes(found) == {"a": 2}  # for the master, and for one worker


def test_a_pod_that_is_named_like_a_job_is_none_of_its_own() -> None:
    one, two = job("a", 1, 9, 4), job("b", 1, 1, 1)
    for fields in ({}, {"holder": Holder.TRAINING, "job": "b"}):  # or shows its boards
        late = serving("b", 1, namespace="ml", priority=0, **fields)
        view = cluster(
            *(node("n", 5), one, two, workers(one, n=4), workers(two, n=1), late)
        )
        assert sizes(made(view)) == {"a": 4}


def test_the_ceiling_is_one_for_up_and_down() -> None:
    settings = Settings(ceilings=(("cpu", 0.75),))
    one = job("a", 1, 9, 1)
    view = cluster(node("n", 8), one, workers(one, n=1))
    grown = made(view, settings=settings)
    assert sizes(grown) == {"a": 6}
    full = replace(one, granted=6)
    there = cluster(node("n", 8), full, workers(full, n=6))
    assert sizes(made(there, grown.memory, settings=settings)) == {"a": 6}


def beside(*waiting: Pod, begin: int) -> list[int]:
    """Return the sizes of a job on 8 CPUs beside pods that find no node for an hour."""
    one, memory, found = job("a", 1, 8, begin), Memory(), list[int]()
    for now in range(int(NOW), int(NOW) + 3600, 5):
        view = cluster(node("n", 8), one, workers(one, n=one.granted or 0), *waiting)
        plan = made(view, memory, now=now)
        one = replace(one, granted=plan.sizes[one.key])
        memory = plan.memory
        found.append(one.granted or 0)
    return found


def test_room_is_not_made_for_good_for_a_pod_that_no_node_takes() -> None:
    # For want of a volume, or by affinity to pods: nobody asked the planner.
    found = beside(serving("w", 4, waiting_since=NOW), begin=8)
    assert found[0] == 4
    assert found[-1] == 8
    assert sum(found) / len(found) > 7
    assert sum(after < before for before, after in pairwise(found)) <= 10


def test_free_room_is_not_left_for_good_to_a_pod_that_no_node_takes() -> None:
    found = beside(serving("w", 4, waiting_since=NOW, priority=LOW - 1), begin=4)
    assert found[0] == 4
    assert found[-1] == 8


def test_room_is_kept_as_long_as_somebody_leaves_it() -> None:
    one = job("a", 1, 8, 4)
    leaving = [worker(one, index, "n", leaving=True) for index in range(4, 8)]
    waits = serving("w", 4, waiting_since=NOW)
    view = cluster(node("n", 8), one, workers(one, n=4), leaving, waits)
    memory = Memory()
    for now in range(int(NOW), int(NOW) + 600, 5):
        found = made(view, memory, now=now)
        assert sizes(found) == {"a": 4}
        memory = found.memory
