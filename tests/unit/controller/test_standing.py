"""When a plan is made again, and when the last one holds."""

from dataclasses import replace

from elasticdl.controller.standing import Standing

from tests.unit.planner.build import (
    NOW,
    cluster,
    job,
    made,
    node,
    serving,
    worker,
    workers,
)

AT_REST = job("a", 1, 3, 3)
NODE = node("n", 4)
VIEW = cluster(NODE, AT_REST, workers(AT_REST, n=3))


def standing(view=VIEW):
    first = made(view)
    return Standing(made(view, first.memory), view, NOW)


def test_at_rest_a_plan_holds_though_grants_are_renewed() -> None:
    assert standing().holds(VIEW, NOW + 5)
    renewed = replace(AT_REST, until=AT_REST.until + 600)
    assert standing().holds(cluster(NODE, renewed, workers(AT_REST, n=3)), NOW + 5)


def test_whatever_changes_asks_for_a_plan() -> None:
    there = workers(AT_REST, n=3)
    for other in (
        cluster(NODE, AT_REST, there, serving("s", 1)),
        cluster(NODE, AT_REST, there[:2]),
        cluster(node("n", 8), AT_REST, there),
        cluster(NODE, replace(AT_REST, max=5), there),
        cluster(NODE, replace(AT_REST, granted=2), there),
        cluster(NODE, replace(AT_REST, until=NOW), there),
    ):
        assert not standing().holds(other, NOW + 5)


def test_a_plan_that_waits_for_something_does_not_hold() -> None:
    grows = job("a", 1, 3, 2)
    asked = cluster(NODE, grows, workers(grows, n=2))
    assert not standing(asked).holds(asked, NOW + 1)
    waits = worker(AT_REST, 2, waiting_since=NOW)
    starts = cluster(NODE, AT_REST, workers(AT_REST, n=2), waits)
    assert not standing(starts).holds(starts, NOW + 1)


def test_when_time_alone_may_change_something_it_does_not_hold() -> None:
    young = replace(NODE, name="m", ready_since=NOW - 10)
    view = cluster(NODE, young, AT_REST, workers(AT_REST, n=3))
    assert standing(view).holds(view, NOW + 5)
    assert not standing(view).holds(view, NOW + 20)


def test_no_plan_of_a_time_to_come_holds() -> None:
    assert not standing().holds(VIEW, NOW - 3600)


def test_it_holds_through_many_renewals_and_not_once_a_grant_has_ended() -> None:
    kept, there = standing(), workers(AT_REST, n=3)
    for minute in range(1, 60):
        renewed = replace(AT_REST, until=NOW + 60 * minute + 600)
        view = cluster(NODE, renewed, there)
        assert kept.holds(view, NOW + 60 * minute)
        kept = kept.renewed(view)
    assert not kept.holds(view, NOW + 60 * 59 + 601)
