import numpy as np
import pytest
from elasticdl.data.formats.example import decode_example
from elasticdl.data.formats.numpy_files import NumpyReader
from elasticdl.errors import DataError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.asarray([3, 1, 2, 0])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_each_row_of_an_npz_file_is_an_example(save, tmp_path, strict):
    path = tmp_path / "data.npz"
    save(path, image=X, label=Y)
    reader = NumpyReader(path, {})
    assert reader.num_records == 4
    assert reader.metadata.column_names == ("image", "label")
    assert reader.metadata.column_dtypes == ("float32", "int64")
    assert reader.metadata.extra["shapes"] == {"image": (3,), "label": ()}
    records = reader.read(1, 9, strict)
    assert len(records) == 3
    first = decode_example(records[0])
    assert first["image"].tolist() == [3, 4, 5]
    assert first["label"].tolist() == [1]


def test_arrays_that_are_not_compressed_are_mapped(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, a=np.asfortranarray(X), b=Y)
    arrays = NumpyReader(path, {})._arrays
    assert all(isinstance(array, np.memmap) for array in arrays.values())
    assert np.array_equal(arrays["a"], X)


def test_an_npy_file_is_one_feature(tmp_path, strict):
    path = tmp_path / "data.npy"
    np.save(path, X)
    assert decode_example(NumpyReader(path, {}).read(0, 1, strict)[0])[
        "features"
    ].tolist() == [0, 1, 2]


def test_the_fields_of_a_structured_array_are_features(tmp_path, strict):
    path = tmp_path / "data.npy"
    rows = np.asarray([(1, 0.5), (2, 1.5)], dtype=[("id", "i4"), ("x", "f8")])
    np.save(path, rows)
    first = decode_example(NumpyReader(path, {}).read(1, 2, strict)[0])
    assert (first["id"].tolist(), first["x"].tolist()) == ([2], [1.5])


def test_arrays_can_be_chosen_and_named(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x_train=X, y_train=Y, x_test=X[:2])
    with pytest.raises(DataError, match=r"different lengths.*arrays"):
        NumpyReader(path, {})
    reader = NumpyReader(path, {"arrays": {"image": "x_train", "label": "y_train"}})
    assert reader.metadata.column_names == ("image", "label")


def test_a_wrong_choice_is_told(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=X)
    with pytest.raises(DataError, match=r"no array 'y', but \['x'\]"):
        NumpyReader(path, {"arrays": {"label": "y"}})
    with pytest.raises(DataError, match="expected feature names"):
        NumpyReader(path, {"arrays": "x"})


def test_no_rows_are_no_records(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.zeros((0, 3)))
    assert NumpyReader(path, {}).num_records == 0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.asarray([None, 1], dtype=object), "plain arrays"),
        (np.asarray([1j]), "expected rows"),
        (np.asarray(3), "expected rows"),
    ],
)
def test_arrays_that_make_no_records_are_refused(array, message, tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=array)
    with pytest.raises(DataError, match=message):
        NumpyReader(path, {})


def test_what_is_no_numpy_file_is_refused(tmp_path):
    path = tmp_path / "data.npy"
    path.write_bytes(b"something else, long enough")
    with pytest.raises(DataError, match=r"expected a \.npy or \.npz"):
        NumpyReader(path, {})
    empty = tmp_path / "none.npz"
    np.savez(empty)
    with pytest.raises(DataError, match="no arrays"):
        NumpyReader(empty, {})
