"""What a worker hands to a PS that lost its values: PsLink with real PS."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from elasticdl.errors import RpcError
from elasticdl.job.heartbeats import PsView, WorkerOrders, WorkerReport
from elasticdl.job.tasks import ReplicaId
from elasticdl.rpc.ps.tensors import PushOrder
from elasticdl.tensor.placement import Variable
from elasticdl.worker.heartbeat import Heartbeat
from elasticdl.worker.ps.link import PsLink
from elasticdl.worker.trainer import LeavingError

from tests.unit.ps.conftest import Group
from tests.unit.ps.test_snapshots_service import checkpoint


def link_to(ps: Group) -> tuple[PsLink, Heartbeat]:
    """A worker's link, and where it learns of the PS."""
    views = Heartbeat(
        lambda _: WorkerOrders(),
        ReplicaId(),
        status=lambda _: WorkerReport(),
        seconds=1.0,
        on_fenced=lambda _: None,
        on_reply=lambda _: None,
    )
    views.learn_view(ps.view)
    link = PsLink(
        ps.client(),
        views,
        layout=ps.layout,
        optimizer_json=ps.optimizer,
        initial=ps.initial(),
        initial_state=ps.state,
        leaving=threading.Event(),
        on_wait=lambda: None,
    )
    return link, views


def asking(ps: Group) -> PsView:
    """What the master tells while the last PS waits for values."""
    wants = tuple(n == ps.num_ps - 1 for n in range(ps.num_ps))
    return replace(ps.view, wants_values=wants)


def order_of(link: PsLink) -> PushOrder:
    """What goes with a push of values that were pulled last."""
    return PushOrder(
        push_id=link.client.next_push_id(),
        versions=link.versions,
        task_id=1,
        records_done=0,
        learning_rate=None,
        batch_records=1,
    )


def wait_for_offer(link: PsLink) -> None:
    assert link._offering is not None
    link._offering.join(20.0)


def test_a_worker_that_makes_no_call_hands_over_what_it_pulled_last(group):
    ps = group(2, sync=False)
    ps.begin()
    link, _ = link_to(ps)
    link.join()
    ps.push(link.client, ps.gradients(1.0), "p0", [0, 0])
    have, _ = link.pull()
    link.push(ps.gradients(1.0), order_of(link))
    assert link.answered() == (0, [2, 2])
    ps.relaunch(1, min_version=2, handback=True)
    link.offer(asking(ps))
    wait_for_offer(link)
    assert link.client.is_initialized() == [True, True]
    figures = ps.servers[1].figures()
    assert (figures.began_at, figures.version) == (1, 2)  # p1 is lost with it
    buffers, versions = link.pull()
    assert versions == [2, 2]
    np.testing.assert_array_equal(buffers[1], have[1])


def test_what_a_ps_answered_is_told_while_another_one_keeps_the_push_waiting(group):
    ps = group(3, sync=False)
    ps.begin()
    link, views = link_to(ps)
    link.join()
    link.pull()
    view = ps.view
    away = replace(
        view,
        revision=view.revision + 1,
        addresses=(*view.addresses[:2], ""),
    )
    views.learn_view(away)
    link._leaving.set()  # the first failure ends the call
    with pytest.raises(LeavingError):
        link.push(ps.gradients(1.0), order_of(link))
    assert link.answered() == (0, [1, 1, 0])


def test_a_worker_that_pulled_nothing_gives_a_job_that_has_begun_nothing(group):
    ps = group(2, sync=False)
    ps.ready(3.0)
    ps.relaunch(1, handback=True)
    link, _ = link_to(ps)
    assert link.answered() == (0, [])
    link.offer(asking(ps))
    assert link._offering is None
    assert link.client.is_initialized() == [True, False]


def test_values_of_before_a_rewind_are_not_handed_over(group):
    ps = group(2, sync=False)
    ps.begin()
    link, _ = link_to(ps)
    link.join()
    link.pull()
    ps.rewind = 1
    ps.begin()
    ps.relaunch(1, handback=True)
    link.offer(asking(ps))
    assert link._offering is None
    assert link.answered() == (0, [0, 0])  # which the master does not count any more


def optimizers_of(ps: Group) -> list[str]:
    """What each PS would write into a checkpoint."""
    return [server.optimizer_json() for server in ps.servers]


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("loads", [True, False])
def test_a_ps_that_comes_back_alone_gets_the_optimizer_of_the_others(
    group, sgd, tmp_path, loads, lost
):
    variables = [Variable(name, (4,)) for name in "abc"]
    ps = group(3, sync=False, variables=variables, optimizer=sgd(0.5))
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "p0", [0, 0, 0])
    folder = checkpoint(ps, tmp_path) if loads else None
    ps.relaunch(lost, folder)
    # The first to come is a worker whose module was edited while the job runs.
    edited = ps.client(1)
    in_force = edited.initialize(ps.layout, sgd(0.1), ps.initial())
    assert in_force == ps.optimizer
    assert optimizers_of(ps) == [ps.optimizer] * 3
    before = edited.pull()
    ps.push(edited, ps.gradients(1.0), "p1", before.versions)
    for old, new in zip(before.buffers, edited.pull().buffers, strict=True):
        np.testing.assert_allclose(old - new, 0.5)


def test_workers_that_differ_from_the_start_give_all_ps_one_optimizer(group, sgd):
    ps = group(3, sync=False, optimizer=sgd(0.5))
    ps.begin()
    clients = [ps.client(number) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        said = list(
            pool.map(
                lambda n: clients[n].initialize(
                    ps.layout, sgd(0.1 * (n + 1)), ps.initial()
                ),
                range(6),
            )
        )
    assert len(set(said)) == 1
    assert optimizers_of(ps) == said[:3]


def test_a_worker_says_that_its_optimizer_is_not_the_one_in_force(group, sgd, caplog):
    ps = group(2, sync=False, optimizer=sgd(0.5))
    ps.ready()
    ps.optimizer = sgd(0.1)
    link_to(ps)[0].join()
    assert "is not the one that the job was started with" in caplog.text


def test_while_one_that_may_have_an_optimizer_is_away_none_is_given_another(group, sgd):
    ps = group(2, sync=False, optimizer=sgd(0.5))
    ps.ready()
    ps.relaunch(0)
    edited, here = ps.client(1), ps.view
    here.addresses[1] = ""
    edited.set_view(here)
    with pytest.raises(RpcError, match="ps-1 is away"):
        edited.initialize(ps.layout, sgd(0.1), ps.initial())
    assert optimizers_of(ps) == ["", ps.optimizer]
    edited.set_view(ps.view)
    edited.initialize(ps.layout, sgd(0.1), ps.initial())
    assert optimizers_of(ps) == [ps.optimizer] * 2
