"""Growth, bounds and the ceiling: how many workers each job is given."""

from dataclasses import replace

from elasticdl.planner.view import (
    Expression,
    Holder,
    Node,
    Placement,
    Resources,
    Settings,
    Taint,
    Template,
    Toleration,
)

from tests.unit.planner.build import (
    HIGH,
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
    workers,
)


def test_a_job_grows_to_its_maximum_where_there_is_room() -> None:
    one = job("a", 1, 3, 1)
    found = made(cluster(node("n", 4), one, workers(one, n=1)))
    assert sizes(found) == {"a": 3}
    assert why(found, "a") == "grew into free room"


def test_a_job_shrinks_where_more_is_used_than_the_ceiling_allows() -> None:
    one = job("a", 1, 3, 3)
    found = made(
        cluster(node("n", 3), one, workers(one, n=3)),
        settings=Settings(ceilings=(("cpu", 0.8),)),
    )
    assert sizes(found) == {"a": 2}
    assert leave(found, "a") == (2,)


def test_what_is_shrunk_for_the_ceiling_does_not_grow_again() -> None:
    one = job("a", 1, 3, 2)
    found = made(
        cluster(node("n", 3), one, workers(one, n=2)),
        settings=Settings(ceilings=(("cpu", 0.8),)),
    )
    assert sizes(found) == {"a": 2}


def test_room_counts_node_by_node_whatever_the_sum_says() -> None:
    one = job("a", 1, 9, 1)
    found = made(cluster(node("n", 2), node("m", 0.5), one))
    assert sizes(found) == {"a": 2}


def test_two_equal_jobs_share_an_odd_number() -> None:
    one, two = job("a", 1, 10, 1), job("b", 1, 10, 1)
    found = made(cluster(node("n", 11), one, two, workers(one, n=1), workers(two, n=1)))
    assert sizes(found) == {"a": 6, "b": 5}


def test_weights_are_shares() -> None:
    found = made(
        cluster(node("n", 12), job("a", 1, 12, None), job("b", 1, 12, None, weight=2.0))
    )
    assert sizes(found) == {"a": 4, "b": 8}


def test_the_dominant_share_decides_between_jobs_of_unlike_workers() -> None:
    # Of 9 CPU and 18 GB: the example of the paper on dominant resource fairness.
    gigabytes = 10**9
    big = Template(Resources.of({"cpu": 1000, "memory": 4 * gigabytes}))
    fast = Template(Resources.of({"cpu": 3000, "memory": gigabytes}))
    large = Node("n", Resources.of({"cpu": 9000, "memory": 18 * gigabytes}))
    found = made(
        cluster(
            large, job("a", 1, 9, None, worker=big), job("b", 1, 9, None, worker=fast)
        )
    )
    assert sizes(found) == {"a": 3, "b": 2}


def test_a_writer_of_a_large_maximum_gets_no_more_for_it() -> None:
    found = made(cluster(node("n", 11), job("a", 1, 4, None), job("b", 1, 40, None)))
    assert sizes(found) == {"a": 4, "b": 7}


def test_there_are_never_more_workers_than_tasks_left() -> None:
    one = job("a", 1, 9, 6, tasks_left=3)
    found = made(cluster(node("n", 9), one, workers(one, n=6)))
    assert sizes(found) == {"a": 3}
    assert leave(found, "a") == (5, 4, 3)
    assert why(found, "a") == "there are 3 tasks left"


def test_the_floor_holds_where_fewer_tasks_are_left() -> None:
    one = job("a", 2, 9, 2, tasks_left=0)
    assert sizes(made(cluster(node("n", 9), one, workers(one, n=2)))) == {"a": 2}


def test_gpus_count_by_their_own_name() -> None:
    asked = Template(cpus(1, **{"nvidia.com/gpu": 1}))
    there = Node("n", cpus(9, **{"nvidia.com/gpu": 2, "amd.com/gpu": 4}))
    assert sizes(made(cluster(there, job("a", 1, 9, None, worker=asked)))) == {"a": 2}


def test_a_node_takes_no_more_pods_than_it_says() -> None:
    there = Node("n", cpus(9, pods=3))
    view = cluster(there, job("a", 1, 9, None), serving("s", 1, "n"))
    assert sizes(made(view)) == {"a": 2}


def test_selectors_taints_and_affinity_keep_workers_out() -> None:
    here = (("zone", "a"),)
    nodes = [
        node("plain", 2, labels=here),
        node("tainted", 4, labels=here, taints=(Taint("gpu", "yes"),)),
        node("far", 8, labels=(("zone", "b"),)),
    ]
    chosen = Placement(selector=here)
    tolerant = Placement(selector=here, tolerations=(Toleration("gpu", "Exists"),))
    near = Placement(affinity=((Expression("zone", "In", ("b",)),),))
    for placement, count in ((chosen, 2), (tolerant, 6), (near, 8)):
        template = Template(cpus(1), placement)
        view = cluster(*nodes, job("a", 1, 30, None, worker=template))
        assert sizes(made(view)) == {"a": count}


def test_a_node_that_does_not_work_is_no_supply_until_it_is_ready_for_a_while() -> None:
    nodes = [
        node("n", 1),
        node("silent", 2, ready=False),
        node("cordoned", 2, cordoned=True),
        node("back", 3, ready_since=NOW - 10),
    ]
    view = cluster(*nodes, job("a", 1, 30, None))
    found = made(view)
    assert sizes(found) == {"a": 1}
    assert found.again_at == NOW + 20
    assert sizes(made(view, found.memory, now=NOW + 20)) == {"a": 4}


def test_a_lost_node_takes_no_worker_from_the_job_that_is_on_it() -> None:
    one = job("a", 1, 4, 4)
    view = cluster(node("n", 4), node("m", 4, ready=False), one, workers(one, n=2, m=2))
    assert sizes(made(view)) == {"a": 4}


def test_master_and_ps_count_before_they_exist() -> None:
    boss = Template(cpus(1), priority=HIGH)
    servers = Template(cpus(2), priority=HIGH)
    one = job("a", 1, 30, None, master=boss, ps=servers, num_ps=2)
    found = made(cluster(node("n", 8), one))
    assert sizes(found) == {"a": 3}


def test_a_job_without_a_maximum_is_left_alone_and_counted() -> None:
    fixed = job("f", 1, 0, None, replicas=5)
    found = made(cluster(node("n", 8), fixed, job("a", 1, 30, None)))
    assert sizes(found) == {"a": 3}
    assert why(found, "f") == "its size is fixed; 5 of its workers have no node yet"


def test_a_job_that_keeps_out_is_left_alone() -> None:
    one = job("a", 1, 9, None, elastic=False, replicas=2)
    assert sizes(made(cluster(node("n", 8), one))) == {}


def test_a_paused_job_is_promised_its_floor_alone() -> None:
    one, two = job("a", 2, 9, 6, paused=True), job("b", 1, 9, 1)
    found = made(cluster(node("n", 8), one, two))
    assert sizes(found) == {"a": 2, "b": 8}
    assert why(found, "a") == "it is paused"


def test_a_grant_beyond_the_users_bounds_is_clamped() -> None:
    one = job("a", 1, 3, 7)
    assert sizes(made(cluster(node("n", 9), one, workers(one, n=3)))) == {"a": 3}


def test_without_a_grant_the_size_is_what_is_there() -> None:
    for one in (job("a", 1, 9, None), job("a", 1, 9, 1, until=NOW - 1)):
        view = cluster(node("n", 4), one, workers(one, n=3), serving("s", 1, "n"))
        assert sizes(made(view)) == {"a": 3}


def test_nothing_is_added_that_the_ceiling_would_take() -> None:
    one = job("a", 1, 99, None)
    found = made(cluster(node("n", 50), node("m", 50), one), settings=Settings())
    assert sizes(found) == {"a": 97}
    assert why(found, "a") == "grew into free room"


def test_a_cluster_without_nodes_has_a_plan() -> None:
    found = made(cluster(job("a", 2, 9, None)))
    assert sizes(found) == {"a": 2}
    assert why(found, "a").startswith("waits for its floor")


def test_the_summary_says_who_holds_what() -> None:
    one = job("a", 1, 3, 2)
    other = serving("o", 1, "n", holder=Holder.OTHER)
    found = made(
        cluster(node("n", 8), one, workers(one, n=2), serving("s", 3, "n"), other)
    )
    cpu = next(one for one in found.summary.holdings if one.resource == "cpu")
    assert (cpu.supply, cpu.serving, cpu.training, cpu.other) == (
        8000,
        3000,
        2000,
        1000,
    )
    (figures,) = found.summary.jobs
    assert (figures.min, figures.max, figures.size, figures.running) == (1, 3, 3, 2)
    assert "cpu 75.0% used (serving 37.5%, training 25.0%" in found.summary.line()


def test_a_node_that_is_ready_since_a_time_to_come_counts() -> None:
    view = cluster(node("n", 2, ready_since=NOW + 3600), job("a", 1, 9, None))
    assert sizes(made(view)) == {"a": 2}


def test_a_node_that_no_worker_tolerates_is_no_part_of_what_they_may_fill() -> None:
    nodes = [node(name, 8) for name in "abc"]
    apart = node("apart", 8, taints=(Taint("control-plane"),))
    settings = Settings(ceilings=(("cpu", 0.9),))
    one = job("a", 1, 99, None)
    # Who is there, and may be there, counts nowhere.
    system = serving("s", 4, "apart")
    without = made(cluster(*nodes, one), settings=settings)
    beside = made(cluster(*nodes, apart, one, system), settings=settings)
    assert sizes(beside) == sizes(without) == {"a": 21}
    assert beside.summary.holdings == without.summary.holdings
    assert (beside.summary.nodes, beside.summary.supply_nodes) == (4, 3)


def test_a_pod_of_others_that_tolerates_such_a_node_takes_no_workers_room() -> None:
    apart = node("apart", 4, taints=(Taint("control-plane"),))
    one = job("a", 1, 99, 4)
    allowed = Placement(tolerations=(Toleration("", "Exists"),))
    waiting = replace(serving("s", 3, ""), placement=allowed, waiting_since=NOW)
    view = cluster(node("n", 4), apart, one, workers(one, n=4), waiting)
    assert sizes(made(view)) == {"a": 4}
