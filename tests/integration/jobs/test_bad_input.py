"""What users get wrong: one clear message, a non-zero exit, no process left."""

import re
import shutil
import socket
from collections import Counter

import pytest
import tensorflow as tf
from elasticdl.data.reader import open_reader
from elasticdl.errors import ExitCode


@pytest.fixture
def job(job):
    """Makes a JobUnderTest of few processes: each mistake is met by any of them."""

    def make(name, **changes):
        few = {"worker": {"replicas": 1}}
        if changes.get("strategy", "parameterServer") == "parameterServer":
            few["ps"] = {"replicas": 1}
        return job(name, **{**few, **changes})

    return make


def ends_with(one, code, *words):
    assert one.wait_for_exit() == code, one.shown()
    for word in words:
        assert word in one.output, one.output
    assert "Traceback" not in one.output
    assert one.processes() == []
    assert one.output.strip().splitlines()[-1]


def model(text):
    return {"model": {"files": {"net.py": text}}}


@pytest.fixture
def net(digits_values):
    return digits_values("x").job.model.files["net.py"]


def raising(net):
    return net.replace("    return keras.Sequential(", "    oh = 1 / 0\n    return (")


def with_vector_loss(net):
    return net.replace("tf.reduce_mean(", "(")


def with_a_layer_that_branches(net):
    layer = """

class Branches(keras.layers.Layer):
    def call(self, x, training=False):
        if training and tf.reduce_sum(x) > 0:
            return x * 2.0
        return x


def custom_model():
"""
    begin, rest = net.split("\n\ndef custom_model():\n")
    begins_at = "keras.Input((64,)),"
    return begin + layer + rest.replace(begins_at, f"{begins_at} Branches(),")


def with_a_feature_that_is_nan(net):
    layer = """

class Spoils(keras.layers.Layer):
    def call(self, x):
        return tf.concat([x[:, :1] * float("nan"), x[:, 1:]], 1)


def custom_model():
"""
    begin, rest = net.split("\n\ndef custom_model():\n")
    begins_at = "keras.Input((64,)),"
    return begin + layer + rest.replace(begins_at, f"{begins_at} Spoils(),")


def with_a_feed_that_raises_late(net):
    late = """

calls = []


def late(label):
    calls.append(1)
    if len(calls) == 400:  # not while the model is built
        raise ValueError("once only")
    return label


def feed("""
    begin, rest = net.split("\n\ndef feed(")
    told = "tf.numpy_function(late, [features['label']], tf.int64)"
    return (
        begin
        + late
        + rest.replace(
            "        image = features",
            f"        features['label'] = tf.ensure_shape({told}, [1])\n"
            "        image = features",
        )
    )


def with_nan_loss(net):
    return net.replace(
        "return tf.reduce_mean(", "return float('nan') * tf.reduce_mean("
    )


def test_missing_data_and_a_wrong_model_path(job):
    no_data = job("no-data", data={"training": "data/nothing"})
    no_model = job("no-model", model={"definition": "net.costum_model"})
    ends_with(no_data, ExitCode.DATA, "data/nothing")
    ends_with(no_model, ExitCode.USER_CODE, "costum_model", "custom_model")


def test_a_model_function_that_raises_and_a_loss_of_the_wrong_shape(job, net):
    raises = job("raises", **model(raising(net)))
    vector = job("vector-loss", **model(with_vector_loss(net)))
    ends_with(raises, ExitCode.USER_CODE, "division by zero", "net.py")
    ends_with(vector, ExitCode.USER_CODE, "reduce_mean")


def test_a_group_says_at_which_records_the_feed_raised(job, net):
    one = job(
        "raised-late",
        **model(with_a_feed_that_raises_late(net)),
        strategy="allReduce",
        worker={"replicas": 2},
    )
    ends_with(one, ExitCode.USER_CODE, "feed raised", "once only")
    assert re.search(r"\(it was at data/\S+ records \d+ to \d+\)", one.output)


@pytest.mark.parametrize(
    "strategy",
    [
        "parameterServer",
        *(pytest.param(one, marks=pytest.mark.soak) for one in ("local", "allReduce")),
    ],
)
def test_what_cannot_be_traced_is_told_with_its_line_at_the_first_try(
    job, net, strategy
):
    # Only a step's `call` has training=True: the model is built without an error.
    one = job(
        f"branches-{strategy.lower()}",
        strategy=strategy,
        **model(with_a_layer_that_branches(net)),
    )
    ends_with(one, ExitCode.USER_CODE, "in call", "net.py", "as a Python `bool`")
    assert "takes its place" not in one.output


def test_nan_loss_stops_the_job_or_the_batch_is_skipped(job, net):
    code = with_nan_loss(net)
    stops = job("nan", **model(code))
    skips = job(
        "nan-skip",
        **model(code),
        training={"epochs": 1, "onNanLoss": "skip"},
    )
    ends_with(stops, ExitCode.JOB_FAILED, "nan", "onNanLoss")
    report = skips.finish()
    assert report.skipped_batches == 4 * 23  # all of the four files


@pytest.mark.parametrize(
    "strategy",
    [
        "local",
        *(
            pytest.param(one, marks=pytest.mark.soak)
            for one in ("parameterServer", "allReduce")
        ),
    ],
)
def test_a_model_that_relu_made_nan_without_a_nan_loss_is_not_exported(
    job, net, strategy
):
    code = with_a_feature_that_is_nan(net)
    name = f"hidden-{strategy.lower()}"
    of_all = {"strategy": strategy, "export": {"dir": "out"}, **model(code)}
    stops = job(name, **of_all, data={"validation": ""})
    measured = job(f"{name}-measured", **of_all)
    skips = job(f"{name}-skip", **of_all, training={"epochs": 1, "onNanLoss": "skip"})
    named = ("not numbers", "kernel", "relu", "onNanLoss")
    ends_with(stops, ExitCode.JOB_FAILED, *named)
    ends_with(measured, ExitCode.JOB_FAILED, *named)
    assert skips.finish().exports


FIXED = ("keras.Input((64,))", "keras.Input((64,), batch_size=16)")


@pytest.mark.parametrize(
    ("changed", "model", "why"),
    [
        ((), {"jitCompile": True}, "XLA compiles the step for one size"),
        pytest.param(FIXED, {}, "input has a fixed batch", marks=pytest.mark.soak),
    ],
    ids=["jitCompile", "fixed batch"],
)
def test_a_global_batch_that_is_no_whole_batches_is_refused_where_these_are_needed(
    job, net, changed, model, why
):
    assert not changed or changed[0] in net
    text = net.replace(*changed, 1) if changed else net
    one = job(
        "no-multiple",
        strategy="allReduce",
        model={"files": {"net.py": text}, **model},
        training={"batchSize": 16, "globalBatchSize": 40},
    )
    ends_with(
        one,
        ExitCode.USER_CODE,
        "training.globalBatchSize: got 40, expected a multiple of training.batchSize, "
        "16",
        why,
        "write 32",
    )


def test_port_in_use(job):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one = job("port", master={"port": port})
        ends_with(one, ExitCode.PLATFORM, str(port), "in use")


@pytest.fixture
def corrupt(digits):
    """The digits with a broken byte, as `data/corrupt`."""
    bad = digits / "data" / "corrupt"
    if not bad.exists():
        shutil.copytree(digits / "data" / "digits" / "train", bad)
        file = max(bad.glob("*"), key=lambda p: p.stat().st_size)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)


@pytest.mark.usefixtures("corrupt")
def test_corrupt_record_fails_naming_file_and_record_or_is_skipped(job):
    one = job("corrupt", data={"training": "data/corrupt"})
    ends_with(one, ExitCode.DATA, "data/corrupt", "record", "onBadRecord")
    other = job(
        "corrupt-skip",
        data={"training": "data/corrupt", "onBadRecord": "skip"},
        training={"epochs": 2},
    )
    report = other.finish()
    assert report.bad_records
    assert "data/corrupt" in report.bad_records[0]["source"]


MOST_INK = 410.5


def with_a_feed_that_takes_little_ink(net):
    return net.replace(
        "        image = features",
        "        ink = tf.reduce_sum(features['image'])\n"
        f"        tf.debugging.assert_less(ink, {MOST_INK})\n"
        "        image = features",
    )


@pytest.mark.parametrize(
    ("strategy", "workers"), [("allReduce", 2), ("local", 1), ("parameterServer", 2)]
)
def test_the_record_that_the_feed_cannot_parse_is_named(
    job, net, digits, strategy, workers
):
    one = job(
        f"unparsed-{strategy.lower()}",
        **model(with_a_feed_that_takes_little_ink(net)),
        strategy=strategy,
        worker={"replicas": workers},
        data={"shuffle": True, "shuffleRecords": True},
        training={"epochs": 1},
    )
    ends_with(one, ExitCode.DATA, "feed cannot parse record", "onBadRecord")
    found = re.search(r"feed cannot parse record (\d+) of (\S+)\[\d", one.output)
    number, source = int(found[1]), found[2]
    reader = open_reader("data/digits/train", data_root=digits)
    (record,) = reader.read(source, number, number + 1, skip_bad=False).values
    image = tf.io.parse_single_example(
        record, {"image": tf.io.FixedLenFeature([64], tf.float32)}
    )["image"]
    assert float(tf.reduce_sum(image)) >= MOST_INK


@pytest.mark.usefixtures("corrupt")
def test_a_group_leaves_bad_records_out_and_names_each_of_them(job, net):
    """One cannot be read; of others the feed makes nothing, whoever has them."""
    group = job(
        "corrupt-group",
        **model(with_a_feed_that_takes_little_ink(net)),
        strategy="allReduce",
        worker={"replicas": 2},
        data={"training": "data/corrupt", "onBadRecord": "skip"},
        training={"epochs": 1},
    )
    report = group.finish()
    listed = Counter((bad["source"], bad["record"]) for bad in report.bad_records)
    assert set(listed.values()) == {1}
    assert len({source for source, _ in listed}) > 1
    found = group.audit()
    assert found.ok
    assert not found.replays
    assert [epoch.bad for epoch in found.epochs] == [len(listed)]
