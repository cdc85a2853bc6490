"""The simulated cluster: clock, scheduler, failures, and the rules that it runs."""

from __future__ import annotations

import pytest
from elasticdl.simulator.course import Course
from elasticdl.simulator.policies import POLICIES, new_policy
from elasticdl.simulator.reading import parse_trace
from elasticdl.simulator.simulation import Simulation

from tests.unit.simulator import cases

SMALL = """
nodes:
  - {count: 2, cpu: 4}
jobs:
  - name: one
    master: {cpu: 0.5}
    ps: {replicas: 1, cpu: 0.5}
    workers: {cpu: 1, min: 1, max: 6}
    work: 600
"""


def simulate(text: str, policy: str = "elastic") -> tuple[Simulation, Course]:
    simulation = Simulation(parse_trace(text, source="t.yaml"), new_policy(policy))
    return simulation, simulation.run()


def sizes(course: Course, time: float) -> tuple[int, ...]:
    return [s for s in course.samples if s.time <= time][-1].running


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_alone_is_done_after_its_work_and_its_start(policy: str) -> None:
    _, course = simulate(SMALL, policy)
    # Master's pod, master, worker's pod, first step; then six workers of 100 s each.
    assert course.done[0].first_worker == 6.0
    least = 2 + 2 + 2 + 5 + 100
    assert course.done[0].ended == pytest.approx(
        least, abs=5 if policy == "edl" else 0.1
    )


def test_the_same_seed_gives_the_same_course() -> None:
    name = "serving-wave"
    given = cases.trace(name).model_copy(update={"until": 60.0})
    one, _ = cases.run(given, "fixed")
    again, _ = cases.run(given, "fixed")
    other, _ = cases.run(given, "fixed", seed=2)
    assert one.samples == again.samples
    assert one.done == again.done
    assert other.seed == 2


def test_a_worker_that_is_pushed_out_is_replaced_by_the_masters_rules() -> None:
    text = (
        SMALL.replace("work: 600", "work: 6000")
        + """
serving:
  - {name: web, cpu: 1.5, replicas: [{at: 30, replicas: 1}, {at: 60, replicas: 0}]}
until: 100
"""
    )
    simulation, course = simulate(text, "fixed")
    job = simulation.jobs["one"]
    assert job.relaunches.causes_by_role() == {"worker": {"preempted": 1}}
    assert sizes(course, 50) == (5,)
    assert sizes(course, 99) == (6,)
    assert job.goodput.seconds(now=100)["preempted"] > 20


def test_a_lost_node_costs_its_workers_until_they_are_replaced() -> None:
    text = (
        SMALL.replace("work: 600", "work: 6000")
        + """
failures: [{at: 40, kind: node, node: node-1, seconds: 30}]
until: 120
"""
    )
    simulation, course = simulate(text)
    assert sizes(course, 50)[0] < 6
    assert sizes(course, 119) == (6,)
    assert simulation.jobs["one"].relaunches.causes_by_role()["worker"]["silent"] >= 1


def test_a_node_that_fails_when_all_are_lost_changes_nothing() -> None:
    more = "failures: [{at: 1, kind: node}, {at: 2, kind: node}, {at: 3, kind: node}]"
    _, course = simulate(f"{SMALL}{more}\nuntil: 60\n")
    assert sizes(course, 59) == (0,)


def test_a_node_without_memory_takes_what_asks_for_none() -> None:
    text = SMALL.replace("cpu: 4}", "cpu: 4, memory: '0'}")
    for role in ("cpu: 0.5", "cpu: 1,"):
        text = text.replace(role, f"memory: '0', {role}")
    _, course = simulate(f"{text}until: 60\n")
    assert sizes(course, 59) == (6,)


def test_without_a_controller_a_job_goes_by_its_file_again() -> None:
    text = (
        SMALL.replace("max: 6", "max: 6, replicas: 2").replace("600", "60000")
        + """
failures: [{at: 60, kind: controller}]
until: 2000
"""
    )
    _, course = simulate(text)
    assert sizes(course, 1700) == (6,)
    assert sizes(course, 1990) == (2,)  # the grant was good for half an hour


def test_nothing_comes_or_goes_while_the_api_server_is_away() -> None:
    text = (
        SMALL.replace("work: 600", "work: 6000")
        + """
serving:
  - {name: web, cpu: 1.5, replicas: [{at: 30, replicas: 1}]}
failures: [{at: 20, kind: api, seconds: 60}]
until: 120
"""
    )
    _, course = simulate(text)
    assert sizes(course, 79) == (6,)
    assert [s.serving for s in course.samples][-1] == 1
    assert sizes(course, 119) == (5,)


def test_a_worker_goes_where_selector_and_taints_let_it() -> None:
    text = """
nodes:
  - {count: 2, cpu: 4, taints: [{key: gpu}]}
  - {count: 1, cpu: 4, labels: {zone: a}}
  - {count: 1, cpu: 4}
jobs:
  - {name: one, workers: {cpu: 1, max: 9, nodeSelector: {zone: a}}}
  - {name: two, at: 1, workers: {cpu: 1, max: 9, tolerations: [gpu]}}
until: 60
"""
    simulation, course = simulate(text)
    pods = simulation.cluster.of_job("one", "worker")
    assert {pod.node.name for pod in pods if pod.node} == {"node-2"}
    assert sizes(course, 59)[1] >= 8


def test_whoever_has_the_higher_priority_pushes_the_fewest_out() -> None:
    text = """
nodes: [{count: 2, cpu: 4}]
jobs: [{name: one, master: {cpu: 0}, workers: {cpu: 2, max: 4}}]
serving: [{name: web, cpu: 2, replicas: [{at: 30, replicas: 1}]}]
until: 60
"""
    _, course = simulate(text, "fixed")
    assert course.done[0].preempted == 1
    assert course.samples[-1].serving == 1
