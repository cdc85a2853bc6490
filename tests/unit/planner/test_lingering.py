"""Room of those that are to leave and do not: nobody waits for it for good."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.planner.memory import Memory
from elasticdl.planner.outcome import Plan
from elasticdl.planner.view import (
    Job,
    JobKey,
    Node,
    Pod,
    Settings,
    Template,
)

from tests.unit.planner.build import (
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

EVERY = 5


def after(
    seconds: int, nodes: list[Node], jobs: list[Job], pods: list[Pod]
) -> tuple[Plan, list[dict[str, int]]]:
    """Plan so long for a cluster in which nobody does what is asked.

    Grants are in force as they come; return the last plan, and all sizes.
    """
    memory, courses = Memory(), []
    for now in range(int(NOW), int(NOW) + seconds + 1, EVERY):
        found = made(cluster(*nodes, *jobs, pods), memory, now=now)
        memory = found.memory
        courses.append(sizes(found))
        jobs = [
            replace(one, granted=found.sizes[one.key], leave=found.leave[one.key])
            if one.key in found.sizes
            else one
            for one in jobs
        ]
    return found, courses


def large(of: Job) -> Template:
    return replace(of.worker, request=cpus(4))


def newcomer(count: int = 1) -> Job:
    came = job("b", count, count + 1, count, arrived=NOW)
    return replace(came, worker=large(came))


def waiting(of: Job) -> Pod:
    return worker(of, 0, waiting_since=NOW)


def test_a_newcomer_waits_a_minute_for_a_pod_that_does_not_go() -> None:
    one, two = job("a", 1, 8, 8), newcomer()
    hangs = serving("s", 8, "m", leaving=True)
    found, courses = after(
        90,
        [node("n", 8), node("m", 8)],
        [one, two],
        [*workers(one, n=8), hangs, waiting(two)],
    )
    assert courses[0] == courses[11] == {"a": 8, "b": 1}
    assert sizes(found) == {"a": 4, "b": 1}
    assert len(leave(found, "a")) == 4


def test_a_plan_says_when_it_waits_no_more_for_a_pod_that_does_not_go() -> None:
    one, two = job("a", 1, 8, 8), newcomer()
    hangs = serving("s", 8, "m", leaving=True)
    pods = [*workers(one, n=8), hangs, waiting(two)]
    found, _ = after(30, [node("n", 8), node("m", 8)], [one, two], pods)
    assert found.again_at == NOW + 60
    assert why(found, "b") == "waits until others have left"


def test_a_newcomer_waits_a_minute_for_a_job_whose_master_lets_nobody_go() -> None:
    deaf = replace(job("a", 1, 8, 4), leave=(7, 6, 5, 4))
    hears, two = job("c", 1, 8, 8), newcomer()
    found, courses = after(
        90,
        [node("n", 8), node("m", 8)],
        [deaf, hears, two],
        [*workers(deaf, n=8), *workers(hears, m=8), waiting(two)],
    )
    assert courses[0] == courses[11] == {"a": 4, "c": 8, "b": 1}
    assert sizes(found) == {"a": 4, "c": 4, "b": 1}
    assert why(found, "a") == "was asked to let workers go, and its master does not"


def test_a_job_whose_master_lets_nobody_go_is_asked_for_no_more() -> None:
    deaf = replace(job("a", 1, 8, 6), leave=(7, 6))
    jobs, pods = [deaf], workers(deaf, n=8)
    found, _ = after(60, [node("n", 8)], jobs, pods)
    late = job("d", 1, 2, None, arrived=NOW + 60)
    view = cluster(node("n", 8), deaf, late, pods)
    asked = made(view, found.memory, now=NOW + 65)
    assert sizes(asked) == {"a": 6, "d": 1}
    assert why(asked, "d").startswith("waits for its floor")


def test_paused_jobs_whose_masters_let_nobody_go_keep_no_newcomer_waiting() -> None:
    paused = job("a", 1, 8, 8, paused=True)
    hears, two = job("c", 1, 8, 8), newcomer()
    found, courses = after(
        90,
        [node("n", 8), node("m", 8)],
        [paused, hears, two],
        [*workers(paused, n=8), *workers(hears, m=8), waiting(two)],
    )
    assert courses[0]["c"] == 8
    assert sizes(found)["c"] == 4


def test_a_job_that_lets_its_workers_go_late_gives_way_again() -> None:
    late = replace(job("a", 1, 8, 6), leave=(7, 6))
    pods = workers(late, n=8)
    found, _ = after(60, [node("n", 8)], [late], pods)
    gone = cluster(node("n", 8), late, pods[:6], newcomer(1))
    again = made(gone, found.memory, now=NOW + 65)
    assert found.memory.going
    assert sizes(again) == {"a": 4, "b": 1}
    assert JobKey("ml", "a") not in {one.key for one in again.memory.pauses}
    assert late.worker.priority == LOW


def test_nobody_waits_for_a_job_whose_grants_are_refused() -> None:
    refused = job("a", 1, 8, None, refused=True)
    hears, two = job("c", 1, 8, 8), newcomer()
    nodes = [node("n", 8), node("m", 8)]
    pods = [*workers(refused, n=8), *workers(hears, m=8), waiting(two)]
    found = made(cluster(*nodes, refused, hears, two, pods))
    assert sizes(found) == {"a": 8, "c": 4, "b": 1}
    assert why(found, "a") == "its grants are refused: the controller's log says why"


def test_a_job_whose_grants_are_refused_is_given_no_room_and_has_its_floor() -> None:
    refused = job("a", 2, 8, None, refused=True)
    found = made(cluster(node("n", 8), refused, workers(refused, n=1)))
    assert sizes(found) == {"a": 2}


def test_nobody_else_leaves_for_the_ceiling_while_workers_take_minutes_to_go() -> None:
    slow, other = replace(job("a", 1, 4, 4), leave=(7, 6, 5, 4)), job("c", 1, 8, 8)
    gone = [replace(one, leaving=True) for one in workers(slow, n=8)[4:]]
    pods = [*workers(slow, n=4), *gone, *workers(other, m=8), serving("s", 3, "o")]
    nodes = (node("n", 8), node("m", 9), node("o", 3))
    view = cluster(*nodes, slow, other, pods)
    memory, settings = Memory(), Settings(ceilings=(("cpu", 0.75),))
    for now in range(int(NOW), int(NOW) + 300, EVERY):
        found = made(view, memory, now=now, settings=settings)
        memory = found.memory
        assert sizes(found) == {"a": 4, "c": 8}


def leaving(of: Job, **on: int) -> list[Pod]:
    return [replace(one, leaving=True) for one in workers(of, **on)]


def test_who_takes_minutes_to_leave_is_asked_no_more_where_others_could() -> None:
    slow, other = replace(job("a", 1, 12, 8), leave=(8, 9, 10, 11)), job("c", 1, 8, 8)
    gone = [replace(one, index=one.index + 8) for one in leaving(slow, m=4)]
    pods = [*workers(slow, n=8), *gone, *workers(other, o=8)]
    nodes = [node("n", 8), node("m", 4), node("o", 8)]
    found, _ = after(60, nodes, [slow, other], pods)
    pods += [waiting(two := newcomer())]
    then = made(cluster(*nodes, slow, other, two, pods), found.memory, now=NOW + 65)
    assert sizes(then) == {"a": 8, "c": 4, "b": 1}


def test_one_batch_leaves_for_a_newcomer_where_all_take_minutes() -> None:
    slow, two = job("a", 1, 16, 16), newcomer()
    nodes = [node("n", 8), node("m", 8)]
    memory, there = Memory(), workers(slow, n=8, m=8)
    for now in range(int(NOW), int(NOW) + 400, EVERY):
        found = made(cluster(*nodes, slow, two, there, waiting(two)), memory, now=now)
        memory = found.memory
        slow = replace(slow, granted=sizes(found)["a"], leave=leave(found, "a"))
        there = [replace(p, leaving=p.leaving or p.index in slow.leave) for p in there]
    assert sum(pod.leaving for pod in there) == 4


def test_a_worker_that_never_goes_keeps_its_job_from_giving_way_for_minutes() -> None:
    stuck, two = job("a", 1, 8, 7), newcomer()
    pods = [*workers(stuck, n=7), worker(stuck, 9, "m", leaving=True)]
    nodes = [node("n", 7), node("m", 1)]
    found, _ = after(100, nodes, [stuck], pods)
    assert found.again_at == NOW + 600
    found, _ = after(700, nodes, [stuck], pods)
    view = cluster(*nodes, stuck, two, pods, waiting(two))
    assert sizes(made(view, found.memory, now=NOW + 705)) == {"a": 3, "b": 1}
