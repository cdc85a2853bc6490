import gzip
import json
import shutil
import sys
import zlib

import numpy as np
import pytest
from elasticdl.data.formats.example import decode_example, encode_example
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.formats.tfrecord import TFRecordWriter
from elasticdl.data.making.convert import ConvertOptions, convert
from elasticdl.data.reader import open_reader
from elasticdl.errors import BadRecordError, DataError
from elasticdl.job.spec.job import DataFormat


def records_of(folder):
    reader = open_reader(str(folder), data_root=folder)
    return [
        record
        for shard in reader.shards()
        for record in reader.read(shard.source, 0, shard.end, skip_bad=False).values
    ]


def write(path, records, writer):
    with writer(path) as file:
        for record in records:
            file.write(record)
    return path


def numbered(count):
    return [b"record %d" % i for i in range(count)]


def details_of(folder):
    return json.loads((folder / "_dataset.json").read_text())


@pytest.mark.parametrize("format", [DataFormat.RECORDIO, DataFormat.TFRECORD])
@pytest.mark.parametrize("writer", [RecordIOWriter, TFRecordWriter])
def test_records_pass_between_the_formats_unchanged(format, writer, tmp_path):
    source = write(tmp_path / "source", numbered(25), writer)
    out = tmp_path / "deep" / "out"
    done = convert(str(source), out, ConvertOptions(format=format, records_per_file=10))
    assert (done.num_records, done.num_files) == (25, 3)
    assert records_of(out) == numbered(25)
    assert len(list(out.glob(f"*.{format}"))) == 3


@pytest.mark.parametrize("format", [DataFormat.RECORDIO, DataFormat.PARQUET])
def test_examples_survive_the_way_through_parquet(format, tmp_path):
    examples = [
        encode_example({"x": [i + 0.5, 1.0], "ids": np.arange(i % 3), "label": i})
        for i in range(25)
    ]
    source = write(tmp_path / "source", examples, RecordIOWriter)
    options = ConvertOptions(format=DataFormat.PARQUET, records_per_file=10)
    assert convert(str(source), tmp_path / "out", options).num_files == 3
    convert(str(tmp_path / "out"), tmp_path / "back", ConvertOptions(format=format))
    back = [decode_example(record) for record in records_of(tmp_path / "back")]
    assert [list(row["x"]) for row in back] == [[i + 0.5, 1.0] for i in range(25)]
    assert [list(row["ids"]) for row in back] == [list(range(i % 3)) for i in range(25)]
    assert [list(row["label"]) for row in back] == [[i] for i in range(25)]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([b"text"], "no tf.train.Example"),
        ([encode_example({"x": 1}), encode_example({"x": 0.5})], "the same in all"),
        (
            [encode_example({"x": 1})] * 1024 + [encode_example({"x": [1, 2]})],
            "a later",
        ),
    ],
)
def test_records_that_make_no_columns_are_refused(records, message, tmp_path):
    source = write(tmp_path / "source", records, RecordIOWriter)
    options = ConvertOptions(format=DataFormat.PARQUET)
    with pytest.raises(DataError, match=message):
        convert(str(source), tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_tfrecords_become_readable(compress, tmp_path):
    plain = write(tmp_path / "plain", numbered(9), TFRecordWriter).read_bytes()
    source = tmp_path / "source.tfrecord.gz"
    source.write_bytes(compress(plain[:50]) + compress(plain[50:]))
    convert(str(source), tmp_path / "out", ConvertOptions())
    assert records_of(tmp_path / "out") == numbered(9)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "_dataset.json",
        "data-00000.recordio",
    }


def test_a_broken_compressed_file_is_told(tmp_path):
    source = tmp_path / "source.csv.gz"
    source.write_bytes(gzip.compress(b"a,b\n" * 100)[:10] + b"\xff\xffbroken")
    with pytest.raises(DataError, match="no whole gzip file"):
        convert(str(source), tmp_path / "out", ConvertOptions())
    assert not (tmp_path / "out").exists()


def test_a_compressed_file_that_was_cut_is_told(tmp_path):
    source = tmp_path / "source.csv.gz"
    source.write_bytes(gzip.compress(b"a,b\n1,2\n" * 10_000)[:-20])
    with pytest.raises(DataError, match="it is cut"):
        convert(str(source), tmp_path / "out", ConvertOptions())


def test_csv_columns_become_typed_features(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("age,pay,name,zip\n30,1.5,Ann,01234\n-4,,Bob,99999\n")
    done = convert(str(source), tmp_path / "out", ConvertOptions())
    one, two = map(decode_example, records_of(tmp_path / "out"))
    assert one["age"].tolist() == [30]
    assert two["age"].tolist() == [-4]
    assert one["pay"].tolist() == [1.5]
    assert np.isnan(two["pay"]).all()
    assert two["name"] == [b"Bob"]
    # A number would lose the zero.
    assert one["zip"] == [b"01234"]
    types = {"age": "integer", "pay": "float", "name": "text", "zip": "text"}
    assert done.details["columns"] == types
    assert details_of(tmp_path / "out")["columns"] == types


def test_unsigned_ids_of_a_csv_keep_their_64_bits(tmp_path):
    (tmp_path / "a.csv").write_text("id,label\n18446744073709551615,1\n7,0\n")
    convert(str(tmp_path / "a.csv"), tmp_path / "out", ConvertOptions())
    ids = [decode_example(record)["id"] for record in records_of(tmp_path / "out")]
    assert [one.astype(np.uint64).tolist() for one in ids] == [[2**64 - 1], [7]]


@pytest.mark.parametrize(
    "line", [",1", "36893488147419103232,1", "-1,1\n18446744073709551615,1"]
)
def test_whole_numbers_of_a_csv_are_not_rounded_in_silence(line, tmp_path):
    (tmp_path / "a.csv").write_text(f"id,label\n123456789,1\n{line}\n")
    with pytest.raises(DataError, match=r"column 'id'.*123456789.*123456792"):
        convert(str(tmp_path / "a.csv"), tmp_path / "out", ConvertOptions())


def test_whole_numbers_that_floats_hold_may_be_missing(tmp_path):
    (tmp_path / "a.csv").write_text("age,income\n41,1500000.25\n,16777219.5\n")
    done = convert(str(tmp_path / "a.csv"), tmp_path / "out", ConvertOptions())
    assert done.details["columns"] == {"age": "float", "income": "float"}


def test_csv_lines_may_stay_text(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text('a,b\n1,"x\ny"\n')
    done = convert(str(source), tmp_path / "out", ConvertOptions(keep_lines=True))
    assert records_of(tmp_path / "out") == [b'1,"x\ny"']
    assert done.details["columns"] == ["a", "b"]


def test_csv_needs_one_name_for_each_column(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("a,a\n1,2\n")
    with pytest.raises(DataError, match="names 'a' 2 times"):
        convert(str(source), tmp_path / "out", ConvertOptions())
    options = ConvertOptions(params={"header": False})
    with pytest.raises(DataError, match="--columns"):
        convert(str(source), tmp_path / "out", options)


def test_bad_records_stop_or_are_left_out(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("a,b\n1,2\n3\n4,5\n")
    with pytest.raises(BadRecordError, match="record 1"):
        convert(str(source), tmp_path / "out", ConvertOptions())
    assert not (tmp_path / "out").exists()
    done = convert(str(source), tmp_path / "out", ConvertOptions(skip_bad=True))
    assert (done.num_records, [bad.record for bad in done.bad]) == (2, [1])


def test_bad_records_of_compressed_files_are_told_by_the_users_file(tmp_path):
    source = tmp_path / "table.csv.gz"
    source.write_bytes(gzip.compress(b"a,b\n1,2\n3\n"))
    done = convert(str(source), tmp_path / "out", ConvertOptions(skip_bad=True))
    assert done.bad[0].source == str(source)


def test_nothing_but_bad_records_writes_nothing(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("a,b\n3\n")
    with pytest.raises(DataError, match="not one good record"):
        convert(str(source), tmp_path / "out", ConvertOptions(skip_bad=True))


def test_numpy_arrays_are_taken_by_name(tmp_path):
    source = tmp_path / "data.npz"
    np.savez(source, x_train=np.ones((5, 2)), y_train=np.arange(5), other=np.zeros(2))
    options = ConvertOptions(
        params={"arrays": {"image": "x_train", "label": "y_train"}}
    )
    convert(str(source), tmp_path / "out", options)
    records = [decode_example(record) for record in records_of(tmp_path / "out")]
    assert [int(record["label"][0]) for record in records] == [0, 1, 2, 3, 4]


def test_what_is_there_needs_overwrite(tmp_path):
    source = write(tmp_path / "source", numbered(3), RecordIOWriter)
    convert(str(source), tmp_path / "out", ConvertOptions())
    with pytest.raises(DataError, match="--overwrite"):
        convert(str(source), tmp_path / "out", ConvertOptions())
    convert(str(source), tmp_path / "out", ConvertOptions(), overwrite=True)
    with pytest.raises(DataError, match="is a file"):
        convert(str(source), source, ConvertOptions())


def test_no_records_per_file_are_refused(tmp_path):
    with pytest.raises(DataError, match="0 records per file"):
        convert("x", tmp_path / "out", ConvertOptions(records_per_file=0))


@pytest.fixture
def photos(tmp_path):
    """Cats are dark, dogs are light; 4 by 3 pixels."""
    from PIL import Image as pillow

    for label, (name, value) in enumerate((("cat", 10), ("dog", 200))):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for i in range(6):
            pixels = np.full((3, 4, 3), value + i, np.uint8)
            pillow.fromarray(pixels).save(folder / f"{i}.png")
        (folder / ".hidden.png").write_bytes(b"x")
        (folder / "notes.txt").write_text(str(label))
    return tmp_path / "photos"


def test_image_folders_become_images_and_labels(photos, tmp_path):
    done = convert(str(photos), tmp_path / "out", ConvertOptions())
    assert done.details == {
        "num_records": 12,
        "classes": ["cat", "dog"],
        "image_shape": [3, 4, 3],
    }
    records = [decode_example(record) for record in records_of(tmp_path / "out")]
    labels = [int(record["label"][0]) for record in records]
    assert sorted(labels) == [0] * 6 + [1] * 6
    assert labels != sorted(labels)
    for record, label in zip(records, labels, strict=True):
        assert record["image"].shape == (36,)
        assert (record["image"][0] > 100) == bool(label)


def test_images_are_resized_and_made_grey(photos, tmp_path):
    options = ConvertOptions(size=(2, 5), grayscale=True)
    done = convert(str(photos), tmp_path / "out", options)
    assert done.details["image_shape"] == [5, 2, 1]


def test_images_of_different_sizes_are_told(photos, tmp_path):
    from PIL import Image as pillow

    pillow.new("RGB", (9, 9)).save(photos / "cat" / "big.png")
    with pytest.raises(DataError, match="--size"):
        convert(str(photos), tmp_path / "out", ConvertOptions())


def test_a_broken_image_stops_or_is_left_out(photos, tmp_path):
    (photos / "cat" / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(BadRecordError, match=r"broken.png.*--skip-bad"):
        convert(str(photos), tmp_path / "out", ConvertOptions())
    done = convert(str(photos), tmp_path / "out", ConvertOptions(skip_bad=True))
    assert done.num_records == 12
    assert done.bad[0].source.endswith("broken.png")


def test_grey_images_of_16_bits_keep_their_shades(tmp_path):
    from PIL import Image as pillow

    (tmp_path / "scans" / "bone").mkdir(parents=True)
    shades = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    pillow.fromarray(shades).save(tmp_path / "scans" / "bone" / "0.png")
    convert(str(tmp_path / "scans"), tmp_path / "out", ConvertOptions())
    (record,) = records_of(tmp_path / "out")
    assert decode_example(record)["image"].tolist() == (shades >> 8).ravel().tolist()


def test_pixels_without_a_black_and_white_are_a_bad_image(tmp_path):
    from PIL import Image as pillow

    (tmp_path / "scans" / "bone").mkdir(parents=True)
    heights = np.full((2, 2), 0.5, np.float32)
    pillow.fromarray(heights).save(tmp_path / "scans" / "bone" / "0.tiff")
    with pytest.raises(BadRecordError, match="8 or 16 bits"):
        convert(str(tmp_path / "scans"), tmp_path / "out", ConvertOptions())


@pytest.mark.parametrize("seed", range(4))
def test_a_grey_image_among_photos_takes_no_colour_from_them(seed, tmp_path):
    from PIL import Image as pillow

    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    pillow.new("L", (2, 2), 7).save(folder / "0.png")
    pillow.new("RGB", (2, 2), (200, 0, 0)).save(folder / "1.png")
    options = ConvertOptions(seed=seed)
    done = convert(str(tmp_path / "photos"), tmp_path / "out", options)
    assert done.details["image_shape"] == [2, 2, 3]
    found = {decode_example(r)["image"][0] for r in records_of(tmp_path / "out")}
    assert found == {7, 200}


def test_a_hidden_folder_is_no_class(photos, tmp_path):
    (photos / ".previews").mkdir()
    shutil.copy(photos / "cat" / "0.png", photos / ".previews")
    done = convert(str(photos), tmp_path / "out", ConvertOptions())
    assert done.details["classes"] == ["cat", "dog"]


def test_images_deeper_than_their_class_are_not_left_out_in_silence(photos, tmp_path):
    (photos / "bird" / "owl").mkdir(parents=True)
    shutil.copy(photos / "cat" / "0.png", photos / "bird" / "owl")
    with pytest.raises(DataError, match="inside bird"):
        convert(str(photos), tmp_path / "out", ConvertOptions())


def test_a_missing_pillow_is_told(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match="Pillow"):
        convert(str(photos), tmp_path / "out", ConvertOptions())
