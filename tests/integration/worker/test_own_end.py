"""An optimizer of one's own that says with which values training ends, as in `fit`."""

import keras
import numpy as np
import pytest
from elasticdl.job.spec.job import ExportSpec
from elasticdl.job.tasks import ExportTarget, ModelVersion, Task, TaskType
from elasticdl.worker.group_maker import ValuesInModel
from elasticdl.worker.uses.fixed_trainer import FixedTrainer
from elasticdl.worker.uses.model_export import ModelExporter
from elasticdl.worker.uses.model_values import ModelValues
from elasticdl.worker.uses.models_aside import Aside, RoundOf

from tests.integration.worker.test_local_checkpoint import saved, state_of
from tests.integration.worker.test_local_trainer import local, train, weights
from tests.integration.worker.test_optimizer_options import text_of

MEANS = """
class Means(keras.optimizers.SGD):
    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.means = self.add_optimizer_variables(variables, "mean")

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        for mean, variable in zip(self.means, self._trainable_variables):
            steps = keras.ops.cast(self.iterations, "float32")
            mean.assign_add((variable - mean) / steps)

    def finalize_variable_values(self, var_list):
        for mean, variable in zip(self.means, self._trainable_variables):
            variable.assign(mean)
"""
FORMS = {
    "itself": "Means(0.5)",
    "inside a loss scale": "keras.optimizers.LossScaleOptimizer(Means(0.5), 8.0)",
}


def trained(definition, mlp, batches_of, form):
    """A module after six steps, its trainer and the means of its values."""
    text = text_of(mlp, "Own").replace("keras.optimizers.Own", FORMS[form])
    text = text.replace("import keras\n", f"import keras\n{MEANS}", 1)
    module = definition(text)
    trainer, seen = local(module), []
    for batch in batches_of(6):
        train(trainer, [batch])
        seen.append(weights(module))
    means = [np.mean(of, axis=0) for of in zip(*seen, strict=True)]
    return text, module, trainer, means


def assert_has(module, means):
    for mine, mean in zip(weights(module), means, strict=True):
        np.testing.assert_allclose(mine, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", ["local", "allReduce"])
def test_the_last_export_has_the_values_with_which_it_ends(
    definition, mlp, batches_of, tmp_path, form, strategy
):
    _, module, trainer, means = trained(definition, mlp, batches_of, form)
    source = trainer if strategy == "local" else ValuesInModel(module)
    exporter = ModelExporter(
        module,
        ExportSpec(dir=str(tmp_path), formats=["keras"]),
        job="digits",
        trainer=source,
        borrowed=ModelValues(module.model, source),
    )
    task = Task(
        task_id=1,
        lease_id=1,
        type=TaskType.EXPORT,
        target=ExportTarget.FINAL,
        model=ModelVersion(),
        beside=3,
        life=1000,
    )
    left = Aside(tmp_path, ExportTarget.BEST, RoundOf("digits", 1000, 3)).path
    left.mkdir()
    exporter.export(task)
    assert not left.exists()
    exported = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert_has(module, means)
    for mine, mean in zip(exported.trainable_variables, means, strict=True):
        np.testing.assert_allclose(mine.numpy(), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_evaluation_and_prediction_jobs_have_them_too(
    definition, mlp, batches_of, tmp_path, form
):
    text, module, _, means = trained(definition, mlp, batches_of, form)
    before = weights(module)
    folder = saved(module, 6, tmp_path / "version-6")
    used = definition(text)
    FixedTrainer(used.model, folder, optimizer=lambda: state_of(used))
    assert_has(used, means)
    # The checkpoint itself goes on from where training was.
    again = definition(text)
    state_of(again).restore(folder)
    for mine, theirs in zip(weights(again), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_checkpoint_of_another_optimizer_is_used_as_it_is(
    definition, mlp, batches_of, tmp_path
):
    module = definition(text_of(mlp, "SGD(0.5)"))
    train(local(module), batches_of(2))
    folder = saved(module, 2, tmp_path / "version-2")
    text, *_ = trained(definition, mlp, batches_of, "itself")
    used = definition(text)
    FixedTrainer(used.model, folder, optimizer=lambda: state_of(used))
    for mine, theirs in zip(weights(used), weights(module), strict=True):
        np.testing.assert_array_equal(mine, theirs)
