"""Weights that a job does not train are those of the checkpoint that it begins with."""

import logging

import numpy as np
import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import CheckpointError, RefusedError
from elasticdl.job.tasks import LIVE
from elasticdl.ps.snapshots import WantedSnapshot
from elasticdl.ps.updater import Control
from elasticdl.worker.uses.fixed_trainer import FixedTrainer
from elasticdl.worker.uses.model_values import ModelValues

from tests.integration.worker.test_local_checkpoint import DENSE, saved, state_of
from tests.integration.worker.test_local_trainer import local, train
from tests.unit.ps.test_snapshots_service import wait_until_written

NORMED = 'keras.layers.BatchNormalization(name="norm", trainable={0})'
BACK = 'keras.layers.Dense(8, activation="tanh", name="back", trainable={0})'


@pytest.fixture
def of_backbone(definition, mlp):
    """Make a module whose layers but the last are trained or not."""

    def make(*, trainable, more="", **changes):
        layers = f"{NORMED}, {BACK}".format(trainable) + more
        return definition(mlp.replace(DENSE, layers), **changes)

    return make


def backbone(module):
    """The weights and statistics of the layers that may be frozen."""
    layers = [module.model.get_layer(name) for name in ("norm", "back")]
    return [weight.numpy() for layer in layers for weight in layer.weights]


def held(one):
    """The same of a model whose trained weights are on PS."""
    values = ModelValues(one.definition.model, one.trainer)
    with values.set_to(one.trainer.values(LIVE)):
        return backbone(one.definition)


def assert_same(mine, theirs):
    assert len(mine) == len(theirs) == 6
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def trained(of_backbone, batches_of, tmp_path):
    """Train all or the head alone; return a checkpoint, and what the backbone is."""

    def make(*, trainable):
        module = of_backbone(trainable=trainable, training={"seed": 1})
        train(local(module), batches_of(10))
        return saved(module, 10, tmp_path / "version-10"), backbone(module)

    return make


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_local_job_begins_with_the_backbone_of_its_checkpoint(
    trained, of_backbone, before, after
):
    folder, expected = trained(trainable=before)
    module = of_backbone(trainable=after)
    state_of(module).restore(folder)
    assert_same(backbone(module), expected)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_evaluation_and_prediction_use_the_backbone_of_the_checkpoint(
    trained, of_backbone, before, after
):
    folder, expected = trained(trainable=before)
    module = of_backbone(trainable=after)
    FixedTrainer(module.model, folder)
    assert_same(backbone(module), expected)


OTHER = ', keras.layers.Dense(8, name="other", trainable=False)'
NO_OTHER = r"other/kernel: got none, expected \(8, 8\)"


def test_a_checkpoint_without_frozen_weights_is_refused_by_their_names(
    trained, of_backbone
):
    folder, _ = trained(trainable=True)
    module = of_backbone(trainable=False, more=OTHER)
    with pytest.raises(CheckpointError, match=NO_OTHER):
        state_of(module).restore(folder)
    with pytest.raises(CheckpointError, match=NO_OTHER):
        FixedTrainer(module.model, folder)


STATISTICS = ", keras.layers.BatchNormalization(name='new', scale=False, center=False)"


def test_state_that_a_checkpoint_does_not_have_is_named(trained, of_backbone, caplog):
    folder, _ = trained(trainable=True)
    caplog.set_level(logging.WARNING)
    new = "sequential/new"
    state_of(of_backbone(trainable=True, more=STATISTICS)).restore(folder)
    assert f"has no state for {new}/moving_mean, {new}/moving_variance" in caplog.text


def begun_from(ps_group, num_ps, folder):
    """PS that are told to load a checkpoint, as those of `initFrom` are."""
    group = ps_group(num_ps)
    group.rewind = 1
    for server in group.servers:
        server.begin(rewind=1, restore_dir=folder)
    group.publish()
    return group


def written(group, folder):
    """Have the PS write a checkpoint, as the master does."""
    for server in group.servers:
        server.control(Control(quorum=1), [WantedSnapshot("ckpt-1", str(folder))])
    done = wait_until_written(group, "ckpt-1")
    assert [one.error for one in done] == [""] * group.num_ps
    manifest = Manifest(
        job="j",
        strategy="parameterServer",
        version=done[0].version,
        shards=[one.file for one in done],
    )
    store.write_manifest(folder, manifest)
    return folder


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_workers_of_ps_begin_with_the_backbone_of_the_checkpoint(
    trained, of_backbone, rig, ps_group, before, after, num_ps
):
    folder, expected = trained(trainable=before)
    group = begun_from(ps_group, num_ps, folder)
    for worker in (0, 1):  # the one that says the layout, and one that joins
        module = of_backbone(trainable=after, training={"seed": 2 + worker})
        assert_same(held(rig(group, module, worker=worker)), expected)


@pytest.mark.parametrize("num_ps", [1, 3])
def test_a_checkpoint_of_ps_has_the_frozen_weights(
    of_backbone, rig, ps_group, batches_of, tmp_path, num_ps
):
    module = of_backbone(trainable=False, training={"seed": 1})
    group, expected = ps_group(2), backbone(module)
    rig(group, module).train(batches_of(4))
    folder = written(group, tmp_path / "version-4")

    evaluated = of_backbone(trainable=False)
    FixedTrainer(evaluated.model, folder)
    assert_same(backbone(evaluated), expected)
    for trainable in (False, True):
        later = of_backbone(trainable=trainable)
        one = rig(begun_from(ps_group, num_ps, folder), later)
        assert_same(held(one), expected)


def test_frozen_weights_outlive_ps_0_and_go_into_its_next_checkpoint(
    of_backbone, rig, ps_group, batches_of, tmp_path
):
    module = of_backbone(trainable=False, training={"seed": 1})
    group = ps_group(1)
    first = rig(group, module, pipeline=False)
    first.train(batches_of(2))
    group.relaunch(0, written(group, tmp_path / "version-2"))
    again = of_backbone(trainable=False)
    rig(group, again, worker=1)
    assert_same(backbone(again), backbone(module))
    group.kill(0)
    group.relaunch(0)  # nothing to load: a worker hands over what it has
    first.train(batches_of(2))
    folder = written(group, tmp_path / "version-4")
    last = of_backbone(trainable=False)
    FixedTrainer(last.model, folder)
    assert_same(backbone(last), backbone(module))


@pytest.mark.parametrize("before", [True, False])
def test_ps_refuse_a_checkpoint_without_frozen_weights_by_their_names(
    trained, of_backbone, rig, ps_group, before
):
    folder, _ = trained(trainable=before)
    module = of_backbone(trainable=False, more=OTHER)
    with pytest.raises(
        RefusedError, match=r"other/kernel: got none, expected \(8, 8\)"
    ):
        rig(begun_from(ps_group, 2, folder), module)


def test_ps_that_loaded_by_themselves_refuse_other_frozen_weights_too(
    of_backbone, rig, ps_group, batches_of, tmp_path
):
    group = ps_group(1)
    rig(group, of_backbone(trainable=False)).train(batches_of(2))
    folder = written(group, tmp_path / "version-2")
    # The layout of what is trained is the same with it: nothing to load anew.
    module = of_backbone(trainable=False, more=OTHER)
    with pytest.raises(
        RefusedError, match=r"other/kernel: got none, expected \(8, 8\)"
    ):
        rig(begun_from(ps_group, 1, folder), module)
