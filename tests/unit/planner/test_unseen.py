"""Jobs whose pods nobody makes: a quota is used up, a queue holds their master."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from elasticdl.job.names import Role
from elasticdl.planner.memory import Memory
from elasticdl.planner.view import Holder, Job, JobKey, Pod, Template

from tests.unit.planner.build import (
    NOW,
    cluster,
    cpus,
    job,
    made,
    node,
    serving,
    sizes,
    workers,
)

OTHER, GHOST = JobKey("ml", "b"), JobKey("ml", "ghost")
EVERY = 5


class Beside:
    """Job b, 1..8 on 8 CPUs, whose master obeys at once, beside a job without pods."""

    def __init__(self, ghost: Job) -> None:
        self.now, self.memory = NOW, Memory()
        self.ghost, self.other = ghost, job("b", 1, 8, 8)
        self.pods: list[Pod] = []  # of the ghost

    def size_after(self, seconds: int) -> list[int]:
        """Let time pass; return how many workers job b has meanwhile."""
        found = []
        for _ in range(0, seconds, EVERY):
            mine = workers(self.other, n=self.other.granted or 0)
            view = cluster(node("n", 8), self.ghost, self.other, mine, self.pods)
            plan = made(view, self.memory, now=self.now)
            self.memory, self.now = plan.memory, self.now + EVERY
            self.other = replace(self.other, granted=plan.sizes[OTHER])
            if GHOST in plan.sizes:
                self.ghost = replace(self.ghost, granted=plan.sizes[GHOST])
            found.append(plan.sizes[OTHER])
        return found


def falls(sizes: list[int]) -> int:
    return sum(after < one for one, after in pairwise(sizes))


def ghost(**fields: object) -> Job:
    more = {"arrived": NOW, "master": Template(cpus(0.1)), **fields}
    return job("ghost", 4, 6, None, **more)


def of_ghost(role: Role, index: int) -> Pod:
    return Pod(
        *("ml", f"ghost-{role}-{index}", cpus(0.1), "n"),
        holder=Holder.TRAINING,
        job="ghost",
        role=role,
        index=index,
        running=True,
    )


def test_a_floor_that_nobody_makes_takes_room_a_few_times_an_hour() -> None:
    found = Beside(ghost()).size_after(3600)
    assert found[0] < 8
    assert falls(found) <= 8
    assert found.count(8) > 0.75 * len(found)


def test_master_and_ps_that_nobody_makes_take_room_a_few_times_an_hour() -> None:
    found = Beside(ghost(ps=Template(cpus(2)), num_ps=3, min=1)).size_after(3600)
    assert found[0] == 1
    assert falls(found) <= 8
    assert found.count(8) > 0.75 * len(found)


def test_a_fixed_job_that_nobody_makes_leaves_its_room_to_others() -> None:
    beside = Beside(ghost(max=0, min=1, replicas=6))
    beside.other = replace(beside.other, granted=2)
    found = beside.size_after(300)
    assert found[0] == 2
    assert 8 in found


def test_a_paused_job_that_nobody_makes_keeps_no_room() -> None:
    ps = {"ps": Template(cpus(1)), "num_ps": 3}
    for kind in ({}, {"max": 0, "replicas": 4}):
        found = Beside(ghost(paused=True, **ps, **kind)).size_after(3600)
        assert sum(found) / len(found) > 7
        assert found[-1] == 8
        assert falls(found) <= 10


def test_a_paused_job_has_its_room_as_soon_as_somebody_makes_a_pod_of_it() -> None:
    beside = Beside(ghost(paused=True, ps=Template(cpus(2)), num_ps=2))
    assert beside.size_after(120)[-1] == 8
    beside.pods = [of_ghost(Role.MASTER, 0)]
    assert beside.size_after(EVERY) == [3]


def test_room_is_made_as_soon_as_somebody_makes_a_pod_of_such_a_job() -> None:
    beside = Beside(ghost())
    assert beside.size_after(900)[-1] == 8
    beside.pods = [of_ghost(Role.MASTER, -1)]
    assert beside.size_after(EVERY) == [3]


def test_a_master_that_has_just_come_has_its_time_to_make_workers() -> None:
    beside = Beside(ghost())
    assert beside.size_after(180)[-1] == 3  # the second try, which ends now
    beside.pods = [of_ghost(Role.MASTER, -1)]
    assert beside.size_after(60) == [3] * 12


def test_a_master_that_is_away_for_minutes_costs_its_job_nothing() -> None:
    away = ghost(granted=4)
    beside = Beside(away)
    beside.pods = workers(away, n=4)
    beside.other = replace(beside.other, granted=3)
    assert beside.size_after(600)[-1] <= 4
    assert beside.ghost.granted == 4


def test_nobody_gives_way_to_ps_that_no_empty_cluster_holds() -> None:
    many = ghost(ps=Template(cpus(2)), num_ps=10_000, min=1)
    assert Beside(many).size_after(60)[0] == 7  # its master has room


def test_a_plan_is_about_a_thousand_workers_that_are_not_there_and_no_more() -> None:
    # Whoever may write a job may write its grant, too.
    small = {"worker": Template(cpus(0.001)), "arrived": NOW}
    one, other = job("a", 1, 100_000, 100_000, **small), job("b", 1, 9, 1)
    nodes = [node(f"n{number}", 8) for number in range(3)]
    found = made(cluster(*nodes, one, other, workers(other, n0=1)))
    assert sizes(found) == {"a": 1000, "b": 9}
    grows = replace(one, granted=1000)
    there = workers(grows, n0=400, n1=300, n2=300)
    assert sizes(made(cluster(*nodes, grows, there))) == {"a": 2000}


def test_a_job_whose_minimum_is_beyond_that_is_granted_its_minimum() -> None:
    one, other = job("a", 99_000, 100_000, None), job("b", 1, 9, 1)
    found = made(cluster(node("n", 8), one, other, workers(other, n=1)))
    assert sizes(found)["a"] == 99_000


def course_beside(
    *others: Job | Pod, seconds: int = 7200, every: int = 20
) -> list[int]:
    """Return the sizes of job b, 1..80, beside what comes meanwhile and stays."""
    memory, other = Memory(), job("b", 1, 80, 80)
    nodes = [node(f"n{number}", 16) for number in range(5)]
    found = []
    for now in range(int(NOW), int(NOW) + seconds, every):
        there = [
            one
            for one in others
            if (one.arrived if isinstance(one, Job) else one.waiting_since) <= now
        ]
        size = other.granted or 0
        on = {f"n{number}": (size + number) // 5 for number in range(5)}
        view = cluster(*nodes, *there, other, workers(other, **on))
        plan = made(view, memory, now=now)
        memory, other = plan.memory, replace(other, granted=plan.sizes[OTHER])
        found.append(plan.sizes[OTHER])
    return found


def test_twenty_jobs_that_nobody_makes_cost_others_little_more_than_one() -> None:
    ghosts = [
        replace(ghost(arrived=NOW + 35 * number), name=f"ghost-{number}")
        for number in range(20)
    ]
    later = course_beside(*ghosts)[1800 // 20 :]
    assert falls(later) <= 40
    assert sum(later) / len(later) > 77


def test_twenty_pods_that_no_node_takes_cost_others_little_more_than_one() -> None:
    pods = [
        serving(f"s-{number}", 2, waiting_since=NOW + 35 * number)
        for number in range(20)
    ]
    later = course_beside(*pods)[1800 // 20 :]
    assert falls(later) <= 80
    assert sum(later) / len(later) > 77


def again(every: int, seconds: int = 3600, gap: int = 0) -> list[int]:
    """Return the sizes of job b beside jobs that are submitted one after the other."""
    memory, other, found = Memory(), job("b", 1, 8, 8), []
    for now in range(int(NOW), int(NOW) + seconds, EVERY):
        number, age = divmod(now - int(NOW), every)
        came = replace(ghost(arrived=now - age), name=f"ghost-{number}")
        there = [came] if age < every - gap else []
        mine = workers(other, n=other.granted or 0)
        plan = made(cluster(node("n", 8), *there, other, mine), memory, now=now)
        memory, other = plan.memory, replace(other, granted=plan.sizes[OTHER])
        found.append(plan.sizes[OTHER])
    return found


def test_jobs_that_are_submitted_again_and_again_in_vain_cost_others_no_more() -> None:
    for found in (again(300), again(120, gap=10), again(50)):
        assert found[1] == 3
        assert falls(found) <= 12
        assert found.count(8) > 0.75 * len(found)


def test_a_job_that_comes_after_such_ones_has_its_room_with_its_first_pod() -> None:
    beside = Beside(ghost())
    assert beside.size_after(120)[-1] == 8
    beside.ghost = replace(ghost(arrived=beside.now), name="other")
    assert beside.size_after(EVERY) == [8]
    beside.pods = [replace(of_ghost(Role.MASTER, -1), job="other")]
    assert beside.size_after(EVERY) == [3]
