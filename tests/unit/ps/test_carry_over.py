"""After a restore the PS run the job's optimizer, with slots where they fit."""

import json

import numpy as np
import pytest
from elasticdl.errors import NotInitializedError, SpecError
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.tensor.placement import Variable

from tests.unit.ps.optimizers.cases import tree
from tests.unit.ps.test_snapshots_service import checkpoint

ONE = [Variable("v", (2,))]


def adam(rate=0.1, kind="Adam", **options):
    return json.dumps(tree(kind, learning_rate=rate, **options))


@pytest.fixture
def restarted(group, tmp_path):
    """Trains three versions with one optimizer, goes on with another; returns both."""

    def restart(before, after, *, join=True):
        old = group(1, sync=False, variables=ONE, optimizer=before)
        client = old.ready()
        for step in range(3):
            old.push(client, old.gradients(1.0), f"{step}", [step])
        new = group(1, sync=False, variables=ONE, optimizer=after)
        new.begin(checkpoint(old, tmp_path))
        joined = new.client()
        if join:
            new.join(joined)
        return old, client, new, joined

    return restart


def moved(ps, client):
    before = client.pull()
    ps.push(client, ps.gradients(1.0), "next", before.versions)
    return client.pull().buffers[0] - before.buffers[0]


def test_the_learning_rate_is_that_of_the_job_and_the_slots_go_on(restarted):
    old, client, new, joined = restarted(adam(0.1), adam(0.01))
    assert joined.pull().version == 3
    np.testing.assert_allclose(moved(new, joined), moved(old, client) / 10, rtol=1e-5)
    parameters = new.servers[0]._live.parameters
    assert json.loads(parameters.optimizer.text)["config"]["learning_rate"] == 0.01
    assert parameters.step == 4


def test_a_rate_of_nothing_moves_nothing(restarted):
    _, _, new, joined = restarted(
        adam(0.003), json.dumps(tree("SGD", learning_rate=0.0))
    )
    np.testing.assert_array_equal(moved(new, joined), 0.0)


def test_another_optimizer_begins_with_new_slots_at_its_first_step(restarted, caplog):
    sgd = json.dumps(tree("SGD", learning_rate=0.5, momentum=0.9))
    _, _, new, joined = restarted(sgd, adam(0.1))
    assert joined.pull().version == 3
    # Adam's first step is its rate, which its later ones without averages are not.
    np.testing.assert_allclose(moved(new, joined), -0.1, rtol=1e-5)
    assert "written with SGD, the job's optimizer is Adam" in caplog.text


def test_a_count_of_steps_that_began_anew_is_in_the_checkpoint(
    restarted, group, tmp_path
):
    sgd = json.dumps(tree("SGD", learning_rate=0.5))
    _, _, new, joined = restarted(sgd, adam(0.1))
    moved(new, joined)
    third = group(1, sync=False, variables=ONE, optimizer=adam(0.1))
    third.begin(checkpoint(new, tmp_path / "more"))
    third.join(third.client())
    parameters = third.servers[0]._live.parameters
    assert (parameters.version, parameters.step) == (4, 1)


def test_slots_of_adam_are_those_of_adamw(restarted):
    old, client, new, joined = restarted(
        adam(0.1), adam(0.1, "AdamW", weight_decay=0.0)
    )
    np.testing.assert_allclose(moved(new, joined), moved(old, client), rtol=1e-6)


def test_a_slot_that_is_missing_begins_anew_and_is_told(restarted, caplog):
    _, _, new, joined = restarted(adam(0.1), adam(0.1, amsgrad=True))
    parameters = new.servers[0]._live.parameters
    assert parameters.step == 3
    assert "no vhat that fits Adam" in caplog.text
    assert joined.pull().version == 3


def test_a_restored_ps_takes_no_gradient_before_a_worker_has_told_the_optimizer(
    restarted,
):
    _, _, new, joined = restarted(adam(0.1), adam(0.01), join=False)
    assert joined.pull().version == 3
    with pytest.raises(NotInitializedError, match="told it the job's optimizer"):
        new.push(joined, new.gradients(1.0), "a", [3])
    new.join(joined)
    assert new.push(joined, new.gradients(1.0), "a", [3]).accepted


def test_a_checkpoint_by_an_optimizer_that_no_ps_runs_waits_for_the_jobs_own(
    group, tmp_path
):
    old = group(1, sync=False, variables=ONE, optimizer=adam(0.1))
    client = old.ready()
    for step in range(3):
        old.push(client, old.gradients(1.0), f"{step}", [step])
    parameters = old.servers[0]._live.parameters
    lamb = adam(0.1).replace("Adam", "Lamb")
    with pytest.raises(SpecError, match="Lamb"):
        optimizer_from_json(lamb)
    object.__setattr__(parameters.optimizer, "text", lamb)
    new = group(1, sync=False, variables=ONE, optimizer=adam(0.1))
    new.begin(checkpoint(old, tmp_path))
    assert not new.servers[0].figures().error
    joined = new.client()
    assert joined.is_initialized() == [False]
    new.join(joined)
    assert joined.pull().version == 3
    np.testing.assert_allclose(moved(new, joined), -0.1, rtol=1e-5)


def test_a_later_worker_with_another_optimizer_is_told_that_the_jobs_own_stays(group):
    ps = group(1, sync=False, variables=ONE, optimizer=adam(0.1))
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0])
    told = ps.client(1).initialize(ps.layout, adam(0.5), ps.initial(), state=ps.state)
    np.testing.assert_allclose(moved(ps, client), -0.1, rtol=1e-5)
    assert told == adam(0.1)


def test_a_checkpoint_whose_optimizer_no_ps_runs_is_loaded_with_the_one_a_worker_brings(
    group, tmp_path, caplog
):
    big = [Variable("big", (64, 2))]
    clipped = adam(clipnorm=1.0, gradient_accumulation_steps=2)
    old = group(1, sync=False, variables=big, optimizer=clipped)
    before = old.whole(old.ready(value=3.0).pull().buffers)
    folder = checkpoint(old, tmp_path)
    # On two PS the variable is cut, and that optimizer needs it in one piece.
    new = group(2, sync=False, variables=big, optimizer=adam(0.1, kind="SGD"))
    assert not any(server.figures().wants_optimizer for server in new.servers)
    new.begin(folder)
    for server in new.servers:
        told = server.figures()
        assert (told.wants_optimizer, told.initialized, told.error) == (True, False, "")
    client = new.ready(value=9.0)
    assert not any(server.figures().wants_optimizer for server in new.servers)
    np.testing.assert_array_equal(
        new.whole(client.pull().buffers)["big"], before["big"]
    )
    assert "written with Adam, the job's optimizer is SGD" in caplog.text
    new.rewind = 1
    new.begin(tmp_path / "version-99")  # what cannot be loaded waits for no optimizer
    assert not any(server.figures().wants_optimizer for server in new.servers)


def test_a_ps_that_has_no_checkpoint_wants_values_not_an_optimizer(group):
    ps = group(1, sync=False)
    ps.begin()
    assert not ps.servers[0].figures().wants_optimizer
