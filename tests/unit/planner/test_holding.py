"""What is held counts as it is: by what pods ask for, on the nodes where they are."""

from dataclasses import replace

from elasticdl.planner.view import (
    Holder,
    Job,
    Node,
    Placement,
    Pod,
    Resources,
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


def heavy(of: Job, asks: float, **on: int) -> list[Pod]:
    """Return workers whose pods ask for more than their job's template."""
    found = workers(of, **on)
    return [worker(of, one.index, one.node, request=cpus(asks)) for one in found]


def test_room_for_a_floor_is_made_though_templates_say_that_it_is_there() -> None:
    one, two = job("a", 1, 2, 2), job("b", 4, 5, None)
    view = cluster(node("n", 8), one, two, heavy(one, 3, n=2))
    found = made(view)
    assert sizes(found) == {"a": 1, "b": 4}
    assert leave(found, "a") == (1,)


def test_workers_that_leave_hold_what_they_asked_for() -> None:
    one, two = job("a", 1, 2, 1, leave=(1,)), job("b", 1, 9, 1)
    view = cluster(
        *(node("n", 8), one, two, heavy(one, 3, n=2), workers(two, n=1)),
    )
    assert sizes(made(view)) == {"a": 1, "b": 2}


def test_a_job_grows_by_workers_like_its_newest() -> None:
    one = job("a", 1, 9, 2)
    old, new = workers(one, n=1), worker(one, 7, "n", request=cpus(2))
    assert sizes(made(cluster(node("n", 8), one, old, new))) == {"a": 4}
    smaller = worker(one, 7, "n", request=cpus(0.5))
    assert sizes(made(cluster(node("n", 8), one, old, smaller))) == {"a": 8}


def test_a_worker_with_more_memory_than_before_waits_where_that_is() -> None:
    one, two = job("a", 2, 3, 2), job("b", 1, 9, 6)
    waits = worker(one, 1, waiting_since=NOW, request=cpus(2))
    view = cluster(
        *(node("n", 8), one, two, workers(one, n=1), [waits], workers(two, n=6)),
    )
    assert sizes(made(view)) == {"a": 2, "b": 5}


def test_a_job_of_fixed_size_holds_what_its_pods_ask_for() -> None:
    fixed, two = job("f", 1, 0, 1, replicas=1), job("b", 1, 9, None)
    view = cluster(node("n", 8), fixed, two, heavy(fixed, 5, n=1))
    assert sizes(made(view)) == {"b": 3}


def test_shares_are_of_what_is_held() -> None:
    one, two = job("a", 1, 9, 4), job("b", 1, 9, 1)
    view = cluster(node("n", 9), one, two, heavy(one, 2, n=4), workers(two, n=1))
    assert sizes(made(view)) == {"a": 2, "b": 1}


def test_what_a_new_worker_asks_for_is_not_forgotten_with_it() -> None:
    one = job("a", 1, 9, 2)
    large = worker(
        one, 1, waiting_since=NOW, request=cpus(2, **{"example.org/fuse": 1})
    )
    view = cluster(node("n", 2), one, workers(one, n=1), large)
    found = made(view)
    assert sizes(found) == {"a": 1}
    assert leave(found, "a") == (1,)
    gone = cluster(node("n", 2), job("a", 1, 9, 1, leave=(1,)), workers(one, n=1))
    still = made(gone, found.memory, now=NOW + 20)
    assert sizes(still) == {"a": 1}
    newer = worker(one, 2, "m")
    seen = cluster(node("n", 2), node("m", 1), one, workers(one, n=1), newer)
    assert sizes(made(seen, still.memory, now=NOW + 40)) == {"a": 3}


def test_another_job_of_the_same_name_has_its_own_workers() -> None:
    one = job("a", 1, 9, 1)
    found = made(cluster(node("n", 8), one, worker(one, 7, "n", request=cpus(3))))
    assert sizes(found) == {"a": 2}
    other = replace(one, arrived=NOW)
    view = cluster(node("n", 8), other, workers(other, n=1))
    assert sizes(made(view, found.memory, now=NOW + 20)) == {"a": 8}


def test_an_edit_of_what_workers_ask_for_counts_at_once() -> None:
    large, small = (Template(cpus(size), priority=LOW) for size in (4, 0.5))
    one = job("a", 1, 99, 1, worker=large)
    there = heavy(one, 5, n=1)  # somebody puts a container beside each
    found = made(cluster(node("n", 9), one, there))
    assert sizes(found) == {"a": 1}
    later = cluster(node("n", 9), replace(one, worker=small), there)
    assert sizes(made(later, found.memory, now=NOW + 20)) == {"a": 3}


def test_a_cordoned_node_costs_no_worker_elsewhere() -> None:
    one = job("a", 1, 9, 7)
    there = workers(one, n=4, m=3)
    nodes = (node("n", 4), node("m", 4))
    view = cluster(*nodes, one, there, serving("s", 0.75, "m"))
    assert sizes(made(view, settings=Settings())) == {"a": 7}
    cordoned = replace(view, nodes=(nodes[0], replace(nodes[1], cordoned=True)))
    assert sizes(made(cordoned, settings=Settings())) == {"a": 7}
    silent = replace(view, nodes=(nodes[0], replace(nodes[1], ready=False)))
    assert sizes(made(silent, settings=Settings())) == {"a": 7}


def test_a_cordoned_node_that_is_empty_is_no_room_for_those_elsewhere() -> None:
    one = job("a", 1, 9, 4)
    view = cluster(
        *(node("n", 4), node("m", 4, cordoned=True), one, workers(one, n=4)),
        serving("agent", 0.1, "m", priority=0, holder=Holder.OTHER),
    )
    assert sizes(made(view, settings=Settings())) == {"a": 3}


def test_devices_that_are_away_for_a_moment_cost_no_worker() -> None:
    asks = Template(cpus(1, **{"nvidia.com/gpu": 1}), priority=LOW)
    one, two = job("a", 1, 9, 4, worker=asks), job("b", 1, 9, 3, worker=asks)
    there = workers(one, n=4), workers(two, m=3)
    restarts = Node("n", cpus(8))
    healthy = Node("m", cpus(8, **{"nvidia.com/gpu": 4}))
    found = made(cluster(restarts, healthy, one, two, *there), settings=Settings())
    assert sizes(found) == {"a": 4, "b": 4}
    alone = made(cluster(restarts, one, there[0]), settings=Settings())
    assert sizes(alone) == {"a": 4}


def test_a_node_that_shrank_below_what_runs_there_costs_no_worker() -> None:
    one = job("a", 1, 9, 7)
    view = cluster(node("n", 4), node("m", 4), one, workers(one, n=4, m=3))
    assert sizes(made(view, settings=Settings())) == {"a": 7}
    shrunk = replace(view, nodes=(node("n", 2), node("m", 4)))
    assert sizes(made(shrunk, settings=Settings())) == {"a": 7}


def test_a_node_that_takes_no_pods_takes_none() -> None:
    there = Node("n", Resources.of({"cpu": 9000, "pods": 0}))
    assert sizes(made(cluster(there, node("m", 2), job("a", 1, 9, None)))) == {"a": 2}


def test_workers_that_hold_the_model_of_a_paused_job_are_no_free_room() -> None:
    ring = job("ring", 7, 9, 8, paused=True, keeps_workers=True)
    other, newcomer = job("b", 1, 8, 8), job("new", 2, 4, None, arrived=NOW)
    view = cluster(
        *(node("n", 8), node("m", 8), ring, other, newcomer),
        *(workers(ring, n=8), workers(other, m=8)),
    )
    found = made(view)
    assert (sizes(found)["ring"], sizes(found)["new"]) == (7, 2)
    assert leave(found, "b")
    assert why(found, "ring") == "it is paused"
    at_rest = made(cluster(node("n", 8), replace(ring, granted=7), workers(ring, n=7)))
    assert sizes(at_rest) == {"ring": 7}
    assert "hold the model" in why(at_rest, "ring")


def in_pool(one: Pod, pool: str) -> Pod:
    """Return a pod on whose nodes its namespace decides: its template does not."""
    return replace(one, placement=Placement((("pool", pool),)))


def pools() -> list[Node]:
    return [
        node("n", 4, labels=(("pool", "train"),)),
        node("m", 16, labels=(("pool", "serve"),)),
    ]


def test_a_job_does_not_grow_onto_nodes_that_its_newest_workers_may_not_use() -> None:
    one = job("a", 1, 20, 20)
    there = [in_pool(pod, "train") for pod in workers(one, n=4)]
    waits = [
        in_pool(worker(one, index, waiting_since=NOW), "train")
        for index in range(4, 20)
    ]
    found = made(cluster(*pools(), one, there, waits))
    assert sizes(found) == {"a": 4}
    four = replace(one, granted=4, leave=found.leave[one.key])
    still = made(cluster(*pools(), four, there), found.memory, now=NOW + 2)
    assert sizes(still) == {"a": 4}


def test_jobs_share_the_nodes_that_their_namespace_gives_them() -> None:
    one, two = job("a", 1, 20, 4), job("b", 1, 20, 1)
    there = [in_pool(pod, "train") for pod in workers(one, n=4)]
    waits = in_pool(worker(two, 0, waiting_since=NOW), "train")
    first = made(cluster(*pools(), one, two, there, waits))
    assert sizes(first) == {"a": 3, "b": 1}


def test_another_run_grows_where_its_own_template_says() -> None:
    one = job("a", 1, 20, 4)
    there = [in_pool(pod, "train") for pod in workers(one, n=4)]
    found = made(cluster(*pools(), one, there))
    serve = Template(cpus(1), Placement((("pool", "serve"),)), LOW)
    again = job("a", 1, 20, 1, worker=serve)
    old = replace(there[3], leaving=True)
    view = cluster(*pools(), again, old, worker(again, 0, "m"))
    assert sizes(made(view, found.memory, now=NOW + 20)) == {"a": 16}


def test_a_worker_behind_a_gate_does_not_say_where_the_next_one_may_be() -> None:
    one = job("a", 1, 20, 4)
    there = [in_pool(pod, "train") for pod in workers(one, n=3)]
    held = worker(one, 7, waiting_since=NOW, gated=True)
    found = made(cluster(*pools(), one, there, held))
    gone = made(cluster(*pools(), one, there), found.memory, now=NOW + 1)
    assert sizes(gone) == {"a": 4}
    old = cluster(*pools(), one, [*there[:2], worker(one, 2, "n")])
    assert sizes(made(old, found.memory, now=NOW + 1)) == {"a": 16 + 4}


def test_a_job_in_a_queue_grows_where_the_next_one_may_be_let_in() -> None:
    in_queue = Template(cpus(1), priority=LOW, queued=True)
    one = job("a", 1, 20, 4, worker=in_queue)
    there = [in_pool(pod, "train") for pod in workers(one, n=4)]
    assert sizes(made(cluster(*pools(), one, there))) == {"a": 20}


def test_a_job_whose_queue_lets_it_in_where_no_room_is_waits_before_it_grows() -> None:
    in_queue = Template(cpus(1), priority=LOW, queued=True)
    one = job("a", 1, 20, 5, worker=in_queue)
    there = [in_pool(pod, "train") for pod in workers(one, n=4)]
    waits = in_pool(worker(one, 4, waiting_since=NOW), "train")
    found = made(cluster(*pools(), one, there, waits))
    assert sizes(found) == {"a": 4}
    four = replace(one, granted=4, leave=found.leave[one.key])
    still = made(cluster(*pools(), four, there), found.memory, now=NOW + 50)
    assert sizes(still) == {"a": 4}
    assert "its pod may only be on nodes that are full" in why(still, "a")
    later = made(cluster(*pools(), four, there), still.memory, now=NOW + 61)
    assert sizes(later) == {"a": 5}
