import gzip
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.formats.tfrecord import TFRecordWriter
from elasticdl.data.reader import FilesReader, Shard, find_files, open_reader
from elasticdl.errors import BadRecordError, DataError
from elasticdl.job.spec.job import DataFormat


def write(path, records, writer=RecordIOWriter):
    path.parent.mkdir(parents=True, exist_ok=True)
    with writer(path) as file:
        for record in records:
            file.write(record)
    return path


def numbered(count, name=""):
    return [b"%s record %d" % (name.encode(), i) for i in range(count)]


def all_records(reader):
    return [
        record
        for shard in reader.shards()
        for record in reader.read(
            shard.source, shard.start, shard.end, skip_bad=False
        ).values
    ]


@pytest.fixture
def folder(tmp_path):
    """Three files under digits/train, written in another order than their names'."""
    for name, count in (("c", 3), ("a", 5), ("b", 4)):
        write(tmp_path / "digits" / "train" / f"{name}.recordio", numbered(count, name))
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "digits/train",
        "digits/train/",
        "digits/train/*.recordio",
        "**/*.recordio",
        "digits/train/a.recordio, digits/train/b.recordio,digits/train/c.recordio",
    ],
)
def test_folders_globs_and_lists_name_the_same_files_in_order(path, folder):
    reader = open_reader(path, data_root=folder)
    assert reader.shards() == [
        Shard("digits/train/a.recordio", 0, 5),
        Shard("digits/train/b.recordio", 0, 4),
        Shard("digits/train/c.recordio", 0, 3),
    ]
    assert all_records(reader) == numbered(5, "a") + numbered(4, "b") + numbered(3, "c")


def test_one_file_may_be_named_relative_or_absolute(folder):
    file = folder / "digits" / "train" / "a.recordio"
    for path in ("digits/train/a.recordio", str(file)):
        reader = open_reader(path, data_root=folder)
        assert reader.shards() == [Shard("digits/train/a.recordio", 0, 5)]


def test_files_outside_the_root_keep_their_whole_path(folder, tmp_path):
    file = folder / "digits" / "train" / "a.recordio"
    reader = open_reader(str(file), data_root=tmp_path / "elsewhere")
    assert reader.shards()[0].source == str(file)


def test_a_source_found_by_another_process_can_be_read(folder):
    # The master listed a file that was not there when this worker listed the folder.
    reader = open_reader("digits/train/a.recordio", data_root=folder)
    found = reader.read("digits/train/b.recordio", 1, 2, skip_bad=False)
    assert found.values == numbered(4, "b")[1:2]


def test_hidden_files_markers_and_indexes_are_no_data(folder):
    train = folder / "digits" / "train"
    for name in (".hidden", "_SUCCESS", "a.recordio.edlidx"):
        (train / name).write_bytes(b"x")
    assert len(open_reader("digits/train", data_root=folder).files) == 3


def test_files_without_records_make_no_shards(folder):
    write(folder / "digits" / "train" / "empty.recordio", [])
    assert len(open_reader("digits/train", data_root=folder).shards()) == 3


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "path to the data is empty"),
        ("digits/trains", r"no such file or folder; did you mean train\?"),
        ("nowhere/at/all", "relative paths start at the data root"),
        ("digits", "holds the folders train: name one of them"),
        ("digits/train/*.csv", "no file matches"),
    ],
)
def test_missing_data_is_told_with_the_next_step(path, message, folder):
    with pytest.raises(DataError, match=message):
        open_reader(path, data_root=folder)


def test_an_empty_folder_and_empty_files_are_told(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="holds no data files"):
        find_files("none", data_root=tmp_path)
    write(tmp_path / "empty.recordio", [])
    with pytest.raises(DataError, match="no records in 1 file"):
        open_reader("empty.recordio", data_root=tmp_path).shards()


@pytest.mark.parametrize("ending", ["", ".recordio", ".dat"])
def test_recordio_is_known_by_ending_or_content(ending, tmp_path):
    write(tmp_path / f"data{ending}", numbered(3))
    assert open_reader(f"data{ending}", data_root=tmp_path).format == "recordio"


@pytest.mark.parametrize("ending", ["", ".tfrecord", ".tfrecord-00000-of-00002", ".x"])
def test_tfrecord_is_known_by_ending_or_content(ending, tmp_path):
    write(tmp_path / f"data{ending}", numbered(3), TFRecordWriter)
    reader = open_reader(f"data{ending}", data_root=tmp_path)
    assert reader.format == "tfrecord"
    assert all_records(reader) == numbered(3)


def test_numpy_and_csv_are_read_through_the_same_door(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    np.savez(tmp_path / "noending", x=np.zeros((4, 2)))
    (tmp_path / "noending.npz").rename(tmp_path / "noending")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert len(all_records(open_reader("a.npy", data_root=tmp_path))) == 3
    assert open_reader("noending", data_root=tmp_path).format == "numpy"
    reader = open_reader("t.csv", data_root=tmp_path)
    assert reader.metadata.column_names == ("a", "b")
    assert all_records(reader) == [b"1,2"]


def test_params_reach_the_csv_reader(tmp_path):
    (tmp_path / "data").write_text("1;2\n3;4\n")
    reader = open_reader(
        "data",
        data_root=tmp_path,
        format=DataFormat.CSV,
        params={"delimiter": ";", "header": False},
    )
    assert all_records(reader) == [b"1;2", b"3;4"]


def test_a_parameter_that_means_nothing_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"readerParams.delimiters.*delimiter\?"):
        open_reader("t.csv", data_root=tmp_path, params={"delimiters": ";"})
    write(tmp_path / "d.recordio", numbered(1))
    with pytest.raises(DataError, match=r"recordio reader does not know .* none"):
        open_reader("d.recordio", data_root=tmp_path, params={"header": True})


def test_unknown_and_mixed_formats_are_told(tmp_path):
    (tmp_path / "mix").mkdir()
    (tmp_path / "mix" / "notes.txt").write_text("just some words")
    with pytest.raises(DataError, match=r"notes.txt: its format cannot be told"):
        open_reader("mix", data_root=tmp_path)
    (tmp_path / "mix" / "notes.txt").unlink()
    write(tmp_path / "mix" / "a.recordio", numbered(1))
    (tmp_path / "mix" / "b.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match="files of different formats"):
        open_reader("mix", data_root=tmp_path)


@pytest.mark.parametrize(
    ("compress", "kind"), [(gzip.compress, "gzip"), (zlib.compress, "zlib")]
)
@pytest.mark.parametrize("format", [DataFormat.AUTO, DataFormat.TFRECORD])
def test_compressed_files_are_refused_with_the_way_out(
    compress, kind, format, tmp_path
):
    plain = write(tmp_path / "plain", numbered(3), TFRecordWriter)
    (tmp_path / "data.tfrecord").write_bytes(compress(plain.read_bytes()))
    with pytest.raises(DataError, match=rf"\({kind}\).*elasticdl data convert"):
        open_reader("data.tfrecord", data_root=tmp_path, format=format)


def test_files_of_different_columns_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("y,x\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(
        DataError, match=r"a\.csv has \['x', 'y'\], b\.csv \['y', 'x'\]"
    ):
        open_reader("*.csv", data_root=tmp_path).shards()
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3), np.float32), y=np.zeros(2))
    np.savez(tmp_path / "b.npz", y=np.zeros(2), x=np.zeros((2, 3)))
    assert len(open_reader("*.npz", data_root=tmp_path).shards()) == 2
    np.savez(tmp_path / "c.npz", y=np.zeros(2), x=np.zeros((2, 4)))
    with pytest.raises(DataError, match=r"c\.npz .*floats.*4"):
        open_reader("*.npz", data_root=tmp_path).shards()


def test_a_range_outside_the_file_is_never_shortened_in_silence(folder):
    reader = open_reader("digits/train", data_root=folder)
    with pytest.raises(BadRecordError, match="only 5 records"):
        reader.read("digits/train/a.recordio", 3, 7, skip_bad=False)
    found = reader.read("digits/train/a.recordio", 3, 7, skip_bad=True)
    assert len(found.values) == 2
    assert [bad.record for bad in found.bad] == [5, 6]
    with pytest.raises(DataError, match="expected 0 <= start <= end"):
        reader.read("digits/train/a.recordio", 5, 3, skip_bad=False)


def test_bad_records_are_listed_with_their_source(folder):
    file = folder / "digits" / "train" / "a.recordio"
    file.write_bytes(file.read_bytes()[:-1])
    reader = open_reader("digits/train", data_root=folder)
    found = reader.read("digits/train/a.recordio", 0, 5, skip_bad=True)
    assert found.values == []
    assert [bad.record for bad in found.bad] == [0, 1, 2, 3, 4]
    assert found.bad[0].source == "digits/train/a.recordio"


def test_threads_read_through_one_reader(folder):
    reader = open_reader("digits/train", data_root=folder)

    def read(start):
        return reader.read("digits/train/a.recordio", start, 5, skip_bad=False).values

    with ThreadPoolExecutor(8) as threads:
        for start, values in zip(
            [i % 5 for i in range(100)],
            threads.map(read, [i % 5 for i in range(100)]),
            strict=True,
        ):
            assert values == numbered(5, "a")[start:]


def test_a_file_that_vanished_is_told(folder):
    reader = open_reader("digits/train", data_root=folder)
    (folder / "digits" / "train" / "b.recordio").unlink()
    with pytest.raises(DataError, match=r"b.recordio: cannot be read"):
        reader.shards()
    assert isinstance(reader, FilesReader)
