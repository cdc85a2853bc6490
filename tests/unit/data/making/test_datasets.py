import json
import sys
from collections import Counter

import numpy as np
import pytest
from elasticdl.data.formats.example import decode_example
from elasticdl.data.making.builtin import Arrays, load_arrays
from elasticdl.data.making.datasets import DatasetOptions, make_dataset, stratified
from elasticdl.data.reader import open_reader
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataFormat
from hypothesis import given
from hypothesis import strategies as st


def records_of(folder):
    reader = open_reader(str(folder), data_root=folder)
    return [
        decode_example(record)
        for shard in reader.shards()
        for record in reader.read(shard.source, 0, shard.end, skip_bad=False).values
    ]


def small(name="any"):
    """A loader of thirty rows, three labels."""
    return Arrays(np.arange(60.0).reshape(30, 2), np.arange(30) % 3)


def test_digits_are_images_and_labels_split_by_label(tmp_path):
    made = make_dataset("digits", tmp_path)
    assert (made.num_train, made.num_test, made.made) == (1438, 359, True)
    train, test = records_of(made.train), records_of(made.test)
    assert (len(train), len(test)) == (1438, 359)
    assert len(list(made.train.iterdir())) > 1
    assert train[0]["image"].shape == (64,)
    assert max(record["image"].max() for record in train) == 16
    counts = Counter(int(record["label"][0]) for record in test)
    assert set(counts) == set(range(10))
    assert max(counts.values()) - min(counts.values()) <= 2


@pytest.mark.parametrize(("name", "width"), [("wine", 13), ("breast_cancer", 30)])
def test_tables_are_features_and_labels(name, width, tmp_path):
    made = make_dataset(name, tmp_path)
    record = records_of(made.train)[0]
    assert record["features"].shape == (width,)
    assert record["label"].dtype == np.int64


def test_the_same_seed_makes_the_same_files(tmp_path):
    def content(directory, seed):
        made = make_dataset(
            "wine", tmp_path / directory, DatasetOptions(seed=seed), load=small
        )
        files = sorted([*made.train.iterdir(), *made.test.iterdir()])
        return [file.read_bytes() for file in files]

    assert content("one", 7) == content("two", 7)
    assert content("one", 7) != content("three", 8)


def test_a_data_set_that_is_there_is_not_made_again(tmp_path):
    make_dataset("wine", tmp_path, load=small)

    def fail(name):
        raise AssertionError("loaded again")

    made = make_dataset("wine", tmp_path, load=fail)
    assert (made.made, made.num_train, made.num_test) == (False, 24, 6)


def test_other_options_need_overwrite(tmp_path):
    make_dataset("wine", tmp_path, load=small)
    other = DatasetOptions(format=DataFormat.TFRECORD, records_per_file=5)
    with pytest.raises(DataError, match="--overwrite"):
        make_dataset("wine", tmp_path, other, load=small)
    made = make_dataset("wine", tmp_path, other, overwrite=True, load=small)
    names = sorted(file.name for file in made.train.iterdir())
    assert names[:2] == ["data-00000.tfrecord", "data-00000.tfrecord.edlidx"]
    assert len(records_of(made.train)) == 24
    assert [path.name for path in tmp_path.iterdir()] == ["wine"]


def test_a_folder_that_is_not_ours_is_never_replaced(tmp_path):
    (tmp_path / "wine").mkdir()
    (tmp_path / "wine" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DataError, match="not made by"):
            make_dataset("wine", tmp_path, overwrite=overwrite, load=small)
    assert (tmp_path / "wine" / "thesis.txt").exists()


def test_what_fails_half_way_leaves_nothing(tmp_path):
    def stop(done, total):
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_dataset("wine", tmp_path, load=small, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        make_dataset("wine", tmp_path / "file", load=small)


def test_a_broken_marker_is_told(tmp_path):
    made = make_dataset("wine", tmp_path, load=small)
    (made.directory / "_dataset.json").write_text("{")
    with pytest.raises(DataError, match="remove"):
        make_dataset("wine", tmp_path, load=small)


def test_the_marker_tells_what_was_made(tmp_path):
    made = make_dataset("wine", tmp_path, load=small)
    marker = json.loads((made.directory / "_dataset.json").read_text())
    assert marker["name"] == "wine"
    assert marker["num_train"] == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DatasetOptions(validation_share=1.0), "test share 1.0"),
        (DatasetOptions(records_per_file=-1), "-1 records per file"),
        (DatasetOptions(format=DataFormat.CSV), "format csv"),
    ],
)
def test_wrong_options_are_told(options, message, tmp_path):
    with pytest.raises(DataError, match=message):
        make_dataset("wine", tmp_path, options, load=small)


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 5),
)
def test_each_label_gives_its_share(labels, share, seed):
    labels = np.asarray(labels)
    chosen = stratified(labels, share, np.random.default_rng(seed))
    assert chosen.sum() == round(len(labels) * share)
    for value in np.unique(labels):
        of_value = labels == value
        assert abs(chosen[of_value].sum() - of_value.sum() * share) < 1


FAKE_KERAS = """
import types
import numpy as np

def load_data():
    {body}

datasets = types.SimpleNamespace(
    mnist=types.SimpleNamespace(load_data=load_data),
    cifar10=types.SimpleNamespace(load_data=load_data),
)
"""


def fake_keras(folder, monkeypatch, body):
    """A package named keras, for the process that fetches."""
    (folder / "keras.py").write_text(FAKE_KERAS.format(body=body))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_data_sets_of_keras_keep_their_own_test_part(tmp_path, monkeypatch):
    arrays = (
        "return ((np.ones((8, 2, 2, 3), 'u1'), np.arange(8)[:, None]), "
        "(np.zeros((4, 2, 2, 3), 'u1'), np.arange(4)[:, None]))"
    )
    fake_keras(tmp_path, monkeypatch, arrays)
    made = make_dataset("cifar10", tmp_path / "out")
    assert (made.num_train, made.num_test) == (8, 4)
    train, test = records_of(made.train), records_of(made.test)
    assert train[0]["image"].tolist() == [1.0] * 12
    assert sorted(int(record["label"][0]) for record in train) == list(range(8))
    assert [int(record["label"][0]) for record in test] == [0, 1, 2, 3]


def test_no_network_is_one_clear_error(tmp_path, monkeypatch):
    fake_keras(tmp_path, monkeypatch, "raise OSError('no route to host')")
    with pytest.raises(
        DataError, match=r"mnist could not be fetched.*no route.*digits"
    ):
        make_dataset("mnist", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_data_set_is_told():
    with pytest.raises(DataError, match=r"'minst', .*; did you mean `mnist`"):
        load_arrays("minst")


def test_a_missing_scikit_learn_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"elasticdl\[examples\]"):
        load_arrays("wine")
