"""When grants are written, against a small API server whose answers are scripted."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from elasticdl.controller.deciding import Deciding, Pace, Planner, Rules
from elasticdl.controller.lease import Leadership, LeaseTimes
from elasticdl.controller.watching import WatchedCluster, Watches
from elasticdl.job.grant import Grant, format_grant
from elasticdl.kube.inventory import Serving
from elasticdl.metrics.registry import ControllerMetrics
from elasticdl.planner.memory import Memory
from elasticdl.planner.outcome import Plan
from elasticdl.planner.plan import plan
from elasticdl.planner.view import ClusterView, Settings

from tests.unit.controller.test_reading import NOW, config_map, node
from tests.unit.controller.test_watching import JOBS, NODES, PODS, last, master
from tests.unit.scripted_server import BREAK, Server, listing, until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"
WRITES = f"PATCH {JOBS}/elasticdl-digits"
ME = "ops/controller"
BOUND_SECONDS = 8.0


class Clock:
    """A wall clock that may be set."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server():
    one = Server()
    one.scripts |= {
        NODES: [listing(node())],
        PODS: [listing(master())],
        f"POST {LEASE}": [(201, {"metadata": {"resourceVersion": "1"}})],
        f"PUT {LEASE}/controller": [(200, {"metadata": {"resourceVersion": "1"}})],
        f"{LEASE}/controller": [(404, {})],
        WRITES: [(200, {})],
    }
    yield one
    one.close()


def digits(grant: Grant) -> Any:
    return config_map(annotations={"elasticdl.org/workers": format_grant(grant)})


Story = Callable[[Clock], Awaitable[None]]


def deciding(
    server: Server,
    story: Story,
    planner: Planner = plan,
    steady: Callable[[], float] = time.monotonic,
) -> None:
    """Run a story while it is decided, as fast as can be."""

    async def main() -> None:
        clock, api = Clock(), server.connection()
        watches = Watches(Serving(1_000_000), namespaces=("ml",), by=ME)
        cluster = WatchedCluster(api, watches, clock=clock)
        lease = Leadership(api, "ops", "controller", "me", LeaseTimes())
        rules = Rules(planner, Settings(), ME, Pace(after_change=0.01, at_rest=0.05))
        decides = Deciding(
            *(api, cluster, lease, rules, ControllerMetrics()),
            clock=clock,
            steady=steady,
        )
        running = asyncio.gather(cluster.watch(), lease.run(), decides.run())
        try:
            await asyncio.wait_for(story(clock), BOUND_SECONDS)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await api.close()

    asyncio.run(main())


def writes_though_the_clock_is_set_back(server):
    """Return a story: after the first write the clock goes back, and others follow."""

    async def story(clock: Clock) -> None:
        await until(lambda: server.asked[WRITES] > 0)
        clock.now -= 600
        before = server.asked[WRITES]
        await until(lambda: server.asked[WRITES] > before + 1)

    return story


def test_grants_are_renewed_though_the_clock_was_set_back(server):
    server.scripts[JOBS] = [listing(digits(Grant(2, (), NOW + 300, ME)))]

    deciding(server, writes_though_the_clock_is_set_back(server))


def test_a_refused_grant_is_tried_again_though_the_clock_was_set_back(server):
    server.scripts[JOBS] = [listing(config_map())]
    server.scripts[WRITES] = [(403, {"kind": "Status", "message": "forbidden"})]

    deciding(server, writes_though_the_clock_is_set_back(server))


def test_a_grant_whose_write_is_not_answered_keeps_back_no_other(server):
    server.scripts[JOBS] = [listing(config_map(), last())]
    server.scripts[PODS] = [listing(master(), master("last"))]
    server.scripts[WRITES] = [(200, [BREAK])]
    others = f"PATCH {JOBS}/elasticdl-last"
    server.scripts[others] = [(200, {})]

    async def story(_: Clock) -> None:
        await until(lambda: server.asked[WRITES] > 0 and server.asked[others] > 0)

    deciding(server, story)


def test_the_planner_is_told_whose_grants_are_refused_again_and_again(server):
    server.scripts[JOBS] = [listing(config_map())]
    server.scripts[WRITES] = [(422, {"kind": "Status", "message": "too long"})]
    told = []

    def planner(
        view: ClusterView, memory: Memory, settings: Settings, now: float
    ) -> Plan:
        told.extend(job.refused for job in view.jobs)
        return plan(view, memory, settings, now)

    async def story(_: Clock) -> None:
        await until(lambda: True in told)
        later = len(told)
        server.scripts[WRITES] = [(200, {})]
        await until(lambda: False in told[later:])

    deciding(server, story, planner)
    assert told[0] is False


def test_a_plan_that_took_longer_than_a_view_is_good_for_is_not_written(server):
    server.scripts[JOBS] = [listing(config_map())]
    passing, plans = [0.0], []

    def slow_at_first(
        view: ClusterView, memory: Memory, settings: Settings, now: float
    ) -> Plan:
        plans.append(now)
        if len(plans) == 1:
            passing.append(20.0)  # seconds that it took
        return plan(view, memory, settings, now)

    async def story(_: Clock) -> None:
        await until(lambda: server.asked[WRITES] > 0)
        assert len(plans) > 1

    deciding(
        server, story, slow_at_first, steady=lambda: time.monotonic() + sum(passing)
    )


def test_a_line_of_what_the_cluster_has_is_logged_each_minute_at_least(server, caplog):
    server.scripts[JOBS] = [listing(digits(Grant(2, (), NOW + 1790, ME)))]
    passing, turns = [0.0], []

    def steady() -> float:
        turns.append(None)
        return time.monotonic() + passing[0]

    def lines() -> list[str]:
        return [one for one in caplog.messages if "planned in" in one]

    async def story(_: Clock) -> None:
        await until(lambda: len(lines()) == 1)
        seen = len(turns)
        await until(lambda: len(turns) > seen + 50)
        assert len(lines()) == 1  # nothing has changed
        passing[0] = 60.0
        await until(lambda: len(lines()) == 2)

    with caplog.at_level("INFO"):
        deciding(server, story, steady=steady)
    assert "cpu" in lines()[0]
