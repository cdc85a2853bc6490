"""Import paths of the classic package: served, or told what to write instead."""

import struct

import pytest
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.errors import UserCodeError

from tests.integration.model.conftest import CLASSIC

RECORDIO = """
from elasticdl.python.data.reader.recordio_reader import RecordIODataReader

def custom_data_reader(data_origin, records_per_task=None, **kwargs):
    return RecordIODataReader(data_dir=data_origin)
"""
TEXT = """
from elasticdl.python.data.reader import create_data_reader

def custom_data_reader(data_origin, records_per_task=None, **kwargs):
    return create_data_reader(data_origin, records_per_task, **kwargs)
"""


def everything(reader):
    return [
        record
        for shard in reader.shards()
        for record in reader.read(
            shard.source, shard.start, shard.end, skip_bad=False
        ).values
    ]


def test_a_module_may_bring_the_classic_recordio_reader(define, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    written = [struct.pack("<i", number) for number in range(20)]
    for name, part in (("a.edl", written[:12]), ("b.edl", written[12:])):
        with RecordIOWriter(folder / name) as writer:
            for record in part:
                writer.write(record)
    reader = define(CLASSIC + RECORDIO).custom_reader(str(folder))
    assert [shard.num_records for shard in reader.shards()] == [12, 8]
    assert everything(reader) == written


def test_a_module_may_bring_the_classic_reader_of_text(define, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{number},a\n" for number in range(30)))
    job = {"training": {"batchSize": 2, "batchesPerTask": 4}}
    reader = define(CLASSIC + TEXT, job=job).custom_reader(str(file))
    assert [shard.num_records for shard in reader.shards()] == [8, 8, 8, 6]
    assert [record.split(b",")[0] for record in everything(reader)] == [
        str(number).encode() for number in range(30)
    ]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (
            "from elasticdl.python.elasticdl.feature_column import feature_column",
            "Keras 3 has no feature columns; write keras.Input and keras.layers",
        ),
        (
            "from elasticdl.python.elasticdl.callbacks import SavedModelExporter",
            "set export.dir of the job instead",
        ),
        (
            "from elasticdl.python.data.reader.odps_reader import ODPSDataReader",
            "export them to Parquet or CSV",
        ),
        ("from elasticdl.python.common import tensor_utils", "inner part of the"),
        ("from elasticdl_preprocessing.layers import Hashing", "layers are in Keras 3"),
        ("import elasticai_api", "loops of the user's own are not run here"),
        ("CLASSIFIER = tf.estimator.DNNClassifier", "TensorFlow has no estimators"),
        ("LAYER = tf.keras.layers.DenseFeatures", "Keras 3 has no feature columns"),
        ("MODEL = tf.keras.experimental.LinearModel", "Keras 3 has no keras.experi"),
        ("from tensorflow.keras.experimental import LinearModel", "Keras 3 has no"),
        ("from tensorflow.keras.layers import DenseFeatures", "no feature columns"),
        ("from keras.layers import DenseFeatures", "no feature columns"),
        (
            "from tensorflow.keras.layers.experimental.preprocessing import Hashing",
            "its layers are in Keras 3: Discretization, Hashing",
        ),
        (
            "from tensorflow.keras.layers.experimental import preprocessing",
            "its layers are in Keras 3: Discretization, Hashing",
        ),
        (
            "H = tf.keras.layers.experimental.preprocessing.Hashing",
            "its layers are in Keras 3: Discretization, Hashing",
        ),
        ("from elasticdl.proto import elasticdl_pb2", "inner part of the"),
        ("import recordio", "RecordIO files are read where data.training names them"),
    ],
)
def test_a_name_that_keras_3_cannot_serve_says_what_to_write(define, line, instead):
    with pytest.raises(UserCodeError) as refused:
        define(f"{CLASSIC}\n{line}\n")
    assert instead in str(refused.value)
    assert "ModuleNotFoundError" not in str(refused.value)
    assert "ImportError" not in str(refused.value)
    assert "net.py:" in str(refused.value)
