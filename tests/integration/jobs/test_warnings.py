"""What a worker warns of in a user's model reaches who started the job."""

from elasticdl.testing.claims import check_whole

MODEL = """
import keras


def model():
    network = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile("adam", loss, steps_per_execution=2)
    return network
"""


def test_a_warning_of_the_model_is_a_line_of_the_command_once_for_all_workers(job):
    one = job(
        "warned",
        strategy="allReduce",
        ps={},
        model={"definition": "net.model", "files": {"net.py": MODEL}},
        worker={"replicas": 2},
        training={"epochs": 2},
    )
    report = one.finish()
    check_whole(one, report, least_accuracy=0.0)
    (warning,) = report.warnings
    assert "steps_per_execution=2) changes nothing here" in warning
    told = [line for line in one.output.splitlines() if line.endswith(warning)]
    assert len(told) == 1
    for worker in (0, 1):
        assert "steps_per_execution=2)" in one.log_text("worker", worker)
