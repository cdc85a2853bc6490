"""Snapshots, checkpoints, restore and rewind over real gRPC."""

import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import FencedError, NotInitializedError
from elasticdl.job.tasks import Ticket
from elasticdl.ps.snapshots import WantedSnapshot
from elasticdl.tensor.placement import GradientKind, Variable
from elasticdl.tensor.shared_state import (
    SharedState,
    StateLayout,
    StateShare,
    StateVariable,
)

from tests.unit.ps.conftest import sgd


def wait_until_written(ps, snapshot):
    """Wait, by each PS's own condition, for the snapshot; return what they report."""
    result = []
    for server in ps.servers:
        with server._changed:
            while True:
                found = [d for d in server.figures().snapshots
                         if d.snapshot == snapshot]  # fmt: skip
                if found and not found[0].pinned_only:
                    break
                server._changed.wait(0.01)
        result.append(found[0])
    return result


def ask(ps, snapshot, directory=None):
    """Ask as the master does: PS 0 first, the others with its ticket (sync)."""
    place = str(directory) if directory else ""
    if not ps.sync:
        ps.control(snapshots=(WantedSnapshot(snapshot, place),))
        return
    ps.servers[0].control(ps.control_figures, (WantedSnapshot(snapshot, place),))
    ticket = next(
        d.ticket for d in ps.servers[0].figures().snapshots if d.snapshot == snapshot
    )
    for server in ps.servers[1:]:
        server.control(ps.control_figures, (WantedSnapshot(snapshot, place, ticket),))


def checkpoint(ps, tmp_path, snapshot="ckpt-1") -> Path:
    """Write a complete checkpoint as PS and master do together."""
    directory = tmp_path / f"version-{ps.servers[0].figures().version}"
    ask(ps, snapshot, directory)
    done = wait_until_written(ps, snapshot)
    assert [d.error for d in done] == [""] * ps.num_ps
    manifest = Manifest(
        job="j",
        strategy="parameterServer",
        version=done[0].version,
        shards=[d.file for d in done],
    )
    store.write_manifest(directory, manifest)
    return directory


@pytest.fixture
def trained(group, tmp_path):
    """A checkpoint of one PS, and what its values are."""
    ps = group(1, sync=False)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0])
    return checkpoint(ps, tmp_path), ps.whole(client.pull().buffers)


def one_state(value: float) -> SharedState:
    """State of one variable of two floats, to which steps add."""
    layout = StateLayout((StateVariable("bn", (2,)),))
    return SharedState(layout, np.full(2, value, np.float32))


@pytest.mark.parametrize("sync", [False, True])
def test_an_evaluation_snapshot_stays_while_training_goes_on(group, sync):
    ps = group(2, sync=sync, state=one_state(1.0))
    client = ps.ready()
    ask(ps, "eval-1")
    pinned = ps.whole(client.pull().buffers)
    for step in range(3):
        share = StateShare(np.ones(2, np.float32))
        versions = client.pull().versions
        ps.push(client, ps.gradients(1.0), f"s{step}", versions, state=share)
    snapshot = client.pull(snapshot="eval-1")
    assert snapshot.versions == [0, 0]
    for name, values in ps.whole(snapshot.buffers).items():
        np.testing.assert_array_equal(values, pinned[name])
    np.testing.assert_array_equal(snapshot.state, [1.0, 1.0])
    live = client.pull()
    assert live.version == 3
    np.testing.assert_array_equal(live.state, [4.0, 4.0])
    # The master no longer asks for it: it is dropped.
    ps.control(snapshots=())
    with pytest.raises(NotInitializedError, match="eval-1"):
        client.pull(snapshot="eval-1")


def test_a_snapshot_that_nobody_asked_for_is_unknown(group):
    client = group(1, sync=False).ready()
    with pytest.raises(NotInitializedError, match="hand the task back"):
        client.pull(snapshot="eval-9")


def test_a_follower_serves_a_snapshot_that_the_master_has_not_named_yet(group):
    ps = group(2, sync=True)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0, 0])
    # PS 0 has version 1; the follower has not even applied it.
    request = (WantedSnapshot("eval-1"),)
    ps.servers[0].control(ps.control_figures, request)
    ticket = ps.servers[0].figures().snapshots[0].ticket
    pulled = client.pull(snapshot="eval-1", ticket=ticket)
    assert pulled.versions == [1, 1]


def test_snapshots_of_all_ps_are_of_one_version_while_pushes_go_on(group, threads):
    ps = group(4, sync=True, variables=[Variable("big", (64, 2))])
    ps.ready(value=0.0)
    done = threading.Event()

    def train(worker: int) -> None:
        client, step = ps.client(worker), 0
        while not done.is_set():
            step += 1
            ps.push(
                client, ps.gradients(1.0), f"{worker}-{step}", client.pull().versions
            )

    jobs = [threads.submit(train, worker) for worker in range(2)]
    reader, order = ps.client(9), random.Random(1)
    requests: tuple = ()
    try:
        for number in range(20):
            name = f"eval-{number}"
            requests = (WantedSnapshot(name),)
            ps.servers[0].control(ps.control_figures, requests)
            ticket = next(
                d.ticket
                for d in ps.servers[0].figures().snapshots
                if d.snapshot == name
            )
            for server in order.sample(ps.servers[1:], 3):
                server.control(ps.control_figures, (WantedSnapshot(name, "", ticket),))
            pulled = reader.pull(snapshot=name)
            assert set(pulled.versions) == {ticket.version}
            values = {float(buffer[0]) for buffer in pulled.buffers}
            assert len(values) == 1
    finally:
        done.set()
    for job in jobs:
        job.result()


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 3), (4, 1), (1, 4)])
def test_a_checkpoint_loads_on_any_number_of_ps(
    group, sgd, tmp_path, sync, before, after
):
    # D8: version and slots come back with the values.
    old = group(
        before, sync=sync, optimizer=sgd(0.1, momentum=0.9), state=one_state(5.0)
    )
    client = old.ready()
    for step in range(3):
        old.push(client, old.gradients(1.0, rows=[step]), f"s{step}", [step] * before)
        client.pull()
    directory = checkpoint(old, tmp_path)
    new = group(
        after, sync=sync, optimizer=sgd(0.1, momentum=0.9), state=one_state(0.0)
    )
    new.begin(restore_dir=directory)
    restored = new.client()
    assert restored.is_initialized() == [True] * after
    new.control(quorum=1)
    assert restored.pull().versions == [3] * after
    np.testing.assert_array_equal(restored.pull().state, [5.0, 5.0])
    new.join(restored)
    # Both go on alike: the momentum was restored too.
    for one, who in ((old, client), (new, restored)):
        one.push(who, one.gradients(2.0, rows=[1]), "next", [3] * one.num_ps)
    first, second = client.pull(), restored.pull()
    expected, got = old.whole(first.buffers), new.whole(second.buffers)
    for name, values in expected.items():
        np.testing.assert_array_equal(got[name], values)
    assert second.version == 4


def test_a_push_that_the_checkpoint_has_is_not_applied_again(group, tmp_path):
    ps = group(2, sync=False)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "known", [0, 0])
    directory = checkpoint(ps, tmp_path)
    ps.relaunch(1, restore_dir=directory, min_version=4)
    ps.join(client)
    assert ps.push(client, ps.gradients(1.0), "known", [0, 0]).accepted
    values = ps.whole(client.pull().buffers)
    np.testing.assert_array_equal(values["dense/kernel"], 0.5)
    assert client.pull().versions == [1, 4]


def test_a_rewind_takes_all_ps_back_and_fences_the_past(group, tmp_path):
    ps = group(2, sync=True)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0, 0])
    client.pull()
    directory = checkpoint(ps, tmp_path)
    have = client.pull()
    ps.push(client, ps.gradients(1.0), "b", [1, 1])
    ps.rewind = 1
    ps.relaunch(1, restore_dir=directory)
    ps.servers[0].begin(rewind=1, restore_dir=directory)
    ps.join(client)
    ps.control(quorum=1)
    pulled = client.pull(have=have.versions)
    # The version is the one it has; the life is another: values are sent.
    assert pulled.versions == [1, 1]
    assert [b.size for b in pulled.buffers] == [b.size for b in have.buffers]
    for old, new in zip(have.buffers, pulled.buffers, strict=True):
        np.testing.assert_array_equal(old, new)
    assert ps.push(client, ps.gradients(1.0), "b", [1, 1]).accepted
    assert client.pull().version == 2
    ps.rewind = 0
    stale = ps.client(5)
    ps.rewind = 1
    with pytest.raises(FencedError):
        stale.pull()


def test_a_rewind_to_the_beginning_waits_for_values(group):
    ps = group(2, sync=True)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0, 0])
    ps.rewind = 1
    ps.begin()
    ps.tell_clients()
    assert client.is_initialized() == [False, False]
    client.initialize(ps.layout, ps.optimizer, ps.initial())
    assert client.pull().versions == [0, 0]


def test_prefixes_of_tasks_belong_to_the_checkpoint(group, tmp_path):
    ps = group(2, sync=False)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0, 0], task=7, records=8)
    ps.push(client, ps.gradients(1.0), "b", [1, 1], task=7, records=16)
    ps.push(client, ps.gradients(1.0), "c", [2, 2], task=9, records=8)
    ask(ps, "ckpt-1", tmp_path)
    ps.push(client, ps.gradients(1.0), "d", [3, 3], task=9, records=16)
    for done in wait_until_written(ps, "ckpt-1"):
        assert dict(done.applied) == {7: 16, 9: 8}
        assert done.version == 3


def test_a_checkpoint_that_cannot_be_written_is_told_and_training_goes_on(
    group, tmp_path
):
    ps = group(2, sync=False)
    client = ps.ready()
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    ask(ps, "ckpt-1", blocked / "version-0")
    for done in wait_until_written(ps, "ckpt-1"):
        assert "version-0" in done.error
        assert done.file is None
    assert ps.push(client, ps.gradients(1.0), "a", [0, 0]).accepted
    assert ps.servers[0].figures().error == ""


def test_a_torn_checkpoint_is_an_error_that_the_master_hears(group, tmp_path):
    ps = group(1, sync=False)
    ps.begin(restore_dir=tmp_path / "version-3")
    figures = ps.servers[0].figures()
    assert figures.unloadable == str(tmp_path / "version-3")
    assert "no such folder" in figures.error
    assert not figures.initialized


@pytest.mark.parametrize("place", range(0, 256, 5))
def test_a_byte_that_is_wrong_anywhere_in_a_shard_is_told_and_crashes_nothing(
    trained, group, place
):
    directory, _ = trained
    shard = directory / "shard-0-of-1.edl"
    sound = shard.read_bytes()
    shard.write_bytes(sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :])
    ps = group(1, sync=False)
    ps.begin(restore_dir=directory)
    shard.write_bytes(sound)
    figures = ps.servers[0].figures()
    assert figures.unloadable == str(directory)
    assert "damaged" in figures.error
    assert not figures.initialized


def test_a_ps_that_could_not_load_one_loads_the_next_that_it_is_told(trained, group):
    directory, expected = trained
    ps = group(1, sync=False)
    ps.begin(restore_dir=directory.with_name("version-99"))
    assert ps.servers[0].figures().unloadable
    ps.rewind = 1
    ps.begin(restore_dir=directory)
    figures = ps.servers[0].figures()
    assert (figures.unloadable, figures.error, figures.initialized) == ("", "", True)
    ps.tell_clients()
    for name, values in ps.whole(ps.client().pull().buffers).items():
        np.testing.assert_array_equal(values, expected[name])


def test_a_writer_says_how_many_bytes_the_disk_has(group, tmp_path):
    ps = group(1, sync=False, variables=[Variable("big", (40 << 20, 1))])
    ps.ready(value=1.0)
    told = []
    # Each part is told under the lock; a busy machine misses one between two looks.
    with ps.servers[0]._changed:
        ask(ps, "ckpt-1", tmp_path / "version-0")
        while not told or told[-1].pinned_only:
            told += ps.servers[0].figures().snapshots
            ps.servers[0]._changed.wait(0.01)
    assert max(done.written for done in told) >= 64 << 20
    assert len({done.written for done in told}) > 2
    assert told[-1].file.bytes > 64 << 20


def test_a_checkpoint_of_the_same_model_laid_out_otherwise_is_loaded_anew(
    group, tmp_path
):
    old = group(2, sync=False)
    client = old.ready()
    old.push(client, old.gradients(1.0), "a", [0, 0])
    directory = checkpoint(old, tmp_path)
    expected = old.whole(client.pull().buffers)
    changed = [
        Variable(
            v.name,
            v.shape,
            GradientKind.DENSE if v.kind is GradientKind.ROWWISE else v.kind,
        )
        for v in old.layout.variables
    ]
    new = group(2, sync=False, variables=changed)
    new.begin(restore_dir=directory)
    restored = new.client()
    restored.initialize(new.layout, new.optimizer, new.initial(9.0))
    pulled = restored.pull()
    assert pulled.versions == [1, 1]
    for name, values in new.whole(pulled.buffers).items():
        np.testing.assert_array_equal(values, expected[name])


def test_a_snapshot_for_a_version_that_is_gone_is_refused(group):
    ps = group(2, sync=True)
    client = ps.ready()
    for step in range(2):
        ps.push(client, ps.gradients(1.0), f"s{step}", client.pull().versions)
    client.pull()
    ps.servers[1].control(
        ps.control_figures, (WantedSnapshot("ckpt-1", "/nowhere", Ticket(0)),)
    )
    done = ps.servers[1].figures().snapshots[0]
    assert "already at 2" in done.error
    # Without a ticket a follower waits for the master.
    ps.servers[1].control(ps.control_figures, (WantedSnapshot("ckpt-2", "/nowhere"),))
    assert not ps.servers[1].figures().snapshots


def test_a_round_is_given_up_when_a_worker_brings_another_optimizer(group, trained):
    directory, _ = trained
    ps = group(1, sync=False, optimizer=sgd(0.25, momentum=0.9))
    ps.begin(restore_dir=directory)
    server = ps.servers[0]
    wanted = (WantedSnapshot("eval-1"),)
    server.control(ps.control_figures, wanted)
    assert [done.error for done in server.figures().snapshots] == [""]
    client = ps.client()
    client.initialize(ps.layout, ps.optimizer, ps.initial(9.0))
    ps.push(client, ps.gradients(1.0), "b", [1])
    server.control(ps.control_figures, wanted)
    # Not pinned anew, at a version that the master does not know of.
    (given_up,) = server.figures().snapshots
    assert "another model or optimizer" in given_up.error
    with pytest.raises(NotInitializedError, match="eval-1"):
        client.pull(snapshot="eval-1")
    server.control(ps.control_figures, (WantedSnapshot("eval-2"),))
    assert client.pull(snapshot="eval-2").version == 2


def test_a_pinned_snapshot_that_is_never_claimed_is_dropped(group, monkeypatch):
    monkeypatch.setattr("elasticdl.ps.snapshots._UNCLAIMED_REPLIES", 2)
    ps = group(2, sync=True)
    client = ps.ready()
    ps.servers[0].control(ps.control_figures, (WantedSnapshot("ckpt-1", ""),))
    ps.push(client, ps.gradients(1.0), "a", [0, 0])
    client.pull()
    follower = ps.servers[1]
    assert [d.snapshot for d in follower.figures().snapshots] == ["ckpt-1"]
    for _ in range(3):
        follower.control(ps.control_figures, ())
    assert not follower.figures().snapshots


_LOWERED = """
import os
from elasticdl.ps import snapshots
os.nice(19)
if os.geteuid() == 0:
    os.setuid(65534)  # who may not raise a priority, as in a pod
snapshots._let_others_first()
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux")
def test_a_ps_that_was_started_with_the_lowest_priority_writes_checkpoints_too():
    done = subprocess.run(
        [sys.executable, "-c", _LOWERED], capture_output=True, text=True, check=False
    )
    assert done.stdout == "19\n", done.stderr
