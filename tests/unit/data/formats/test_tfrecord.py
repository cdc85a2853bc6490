import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from elasticdl.beneath import Folder
from elasticdl.data.formats import index, tfrecord, tfrecord_search
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.tfrecord import TFRecordReader, TFRecordWriter
from elasticdl.data.records import BadRecords
from elasticdl.errors import BadRecordError, DataError
from hypothesis import given
from hypothesis import strategies as st


def write(path, records):
    with TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path


def numbered(count):
    return [b"record %d" % i for i in range(count)]


def test_a_file_has_the_bytes_that_tensorflow_writes(tmp_path):
    # Written by tf.io.TFRecordWriter of TensorFlow 2.21.
    golden = bytes.fromhex(
        "0700000000000000bbd79f11656c6173746963d46a87d7000000000000000029039807d8ea82a2"
    )
    path = write(tmp_path / "file", [b"elastic", b""])
    assert path.read_bytes() == golden


@given(
    records=st.lists(st.binary(max_size=40), max_size=60),
    run=st.integers(0, 100),
    data=st.data(),
)
def test_any_range_of_any_file_comes_back(records, run, data):
    # Runs of equal lengths take another path through the scan.
    records = records + [b"same length %03d" % i for i in range(run)] + records[:3]
    start = data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(start, len(records)))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "file", records)
        reader = TFRecordReader(path, FilePool())
        assert reader.num_records == len(records)
        strict = BadRecords("file", skip=False)
        assert reader.read(start, end, strict) == records[start:end]


def test_the_scan_finds_every_offset(tmp_path):
    records = [bytes(n % 5) for n in range(1000)] + [bytes(9)] * 200_000 + [b"end"]
    offsets = tfrecord.scan(write(tmp_path / "file", records))
    sizes = np.asarray([len(record) + 16 for record in records])
    assert np.array_equal(np.diff(offsets), sizes)


def test_a_range_is_one_read_of_its_own_bytes(tmp_path, pool, strict):
    reader = TFRecordReader(write(tmp_path / "file", [bytes(10)] * 10_000), pool)
    for start in (0, 5_000, 9_900):
        pool.reads.clear()
        assert len(reader.read(start, start + 100, strict)) == 100
        assert pool.reads == [(start * 26, 100 * 26)]


def test_the_index_is_kept_beside_the_file_and_used_again(tmp_path):
    path = write(tmp_path / "file", numbered(10))
    first = index.load_or_build(path, "tfrecord", tfrecord.scan)

    def fail(path):
        raise AssertionError("scanned again")

    assert np.array_equal(index.load_or_build(path, "tfrecord", fail), first)
    assert {f.name for f in tmp_path.iterdir()} == {"file", "file.edlidx"}


def test_an_index_of_another_kind_or_an_older_file_is_not_used(tmp_path):
    path = write(tmp_path / "file", numbered(10))
    index.load_or_build(path, "tfrecord", tfrecord.scan)
    assert len(index.load_or_build(path, "other", lambda _: np.zeros(3, np.int64))) == 3
    write(path, numbered(20))
    assert len(index.load_or_build(path, "tfrecord", tfrecord.scan)) == 21


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_index_is_made_again(tmp_path, damage, pool):
    path = write(tmp_path / "file", numbered(10))
    TFRecordReader(path, pool)
    beside = index.index_path(path)
    data = bytearray(beside.read_bytes())
    data[60] ^= 1
    beside.write_bytes(bytes(data) if damage is None else damage)
    assert TFRecordReader(path, pool).num_records == 10


def test_a_read_only_folder_keeps_the_index_in_memory(
    tmp_path, pool, strict, monkeypatch
):
    path = write(tmp_path / "file", numbered(10))

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    # The permission bits of a folder do not bind root, whom tests may run as.
    monkeypatch.setattr(Folder, "open", refuse)
    assert TFRecordReader(path, pool).read(3, 5, strict) == numbered(10)[3:5]
    assert not index.index_path(path).exists()


def test_a_full_disk_leaves_no_half_index(tmp_path, pool, monkeypatch):
    path = write(tmp_path / "file", numbered(10))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert TFRecordReader(path, pool).num_records == 10
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_a_record_with_a_wrong_crc_is_the_only_one_lost(tmp_path, pool, lenient):
    path = write(tmp_path / "file", [bytes(10)] * 5)
    flip(path, 2 * 26 + 15)
    assert len(TFRecordReader(path, pool).read(0, 5, lenient)) == 4
    assert [bad.record for bad in lenient.found] == [2]
    assert "wrong CRC" in lenient.found[0].reason


def test_a_bad_record_is_an_error_that_names_it(tmp_path, pool, strict):
    path = write(tmp_path / "file", [bytes(10)] * 5)
    flip(path, 2 * 26 + 15)
    with pytest.raises(BadRecordError, match=r"file: record 2: .* corrupt") as raised:
        TFRecordReader(path, pool).read(1, 5, strict)
    assert raised.value.record == 2


def test_a_corrupt_length_loses_its_own_record_alone(tmp_path, pool, lenient):
    path = write(tmp_path / "file", [bytes(10)] * 50)
    flip(path, 30 * 26)
    reader = TFRecordReader(path, pool)
    assert reader.num_records == 50
    assert len(reader.read(0, 50, lenient)) == 49
    assert [bad.record for bad in lenient.found] == [30]
    assert "length" in lenient.found[0].reason
    assert "26 bytes further" in lenient.found[0].reason


@given(data=st.data(), damage=st.binary(min_size=1, max_size=30))
def test_any_damage_loses_only_the_records_that_it_touches(data, damage):
    sizes = st.lists(st.integers(1, 300), min_size=1, max_size=30)
    records = [bytes([n % 256]) * size for n, size in enumerate(data.draw(sizes))]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "file", records)
        content = path.read_bytes()
        start = data.draw(st.integers(0, len(content) - 1))
        damage = damage[: len(content) - start]
        end = start + len(damage)
        path.write_bytes(content[:start] + damage + content[end:])
        reader = TFRecordReader(path, FilePool())
        lenient = BadRecords("file", skip=True)
        found = reader.read(0, reader.num_records, lenient)
    offsets = np.cumsum([0] + [len(record) + 16 for record in records])
    untouched = [
        record
        for record, a, b in zip(records, offsets, offsets[1:], strict=False)
        if b <= start or a >= end
    ]
    # Damage may by chance leave the bytes as they were.
    assert [record for record in found if record in untouched] == untouched


def test_a_corrupt_length_is_not_read_to_say_so(tmp_path, pool, lenient, monkeypatch):
    monkeypatch.setattr(tfrecord, "_LONGEST_UNSEEN", 1000)
    path = write(tmp_path / "file", [b"small", bytes(50_000), b"small", bytes(5000)])
    flip(path, 21)
    reader = TFRecordReader(path, pool)
    pool.reads.clear()
    assert reader.read(0, 4, lenient) == [b"small", b"small", bytes(5000)]
    assert pool.num_bytes < 6000


def test_the_next_record_is_found_over_the_borders_of_blocks(monkeypatch):
    monkeypatch.setattr(tfrecord_search, "_BLOCK_BYTES", 7)
    record = b"".join(tfrecord.framed(b"x" * 30))
    for before in range(20):
        assert tfrecord_search.find_head(bytes(before) + record, 0) == before
    assert tfrecord_search.find_head(bytes(40), 0) == 40


@pytest.mark.parametrize("cut", [1, 20, 25])
def test_a_cut_file_is_readable_up_to_the_cut(tmp_path, pool, lenient, cut):
    path = write(tmp_path / "file", [bytes(10)] * 20)
    path.write_bytes(path.read_bytes()[:-cut])
    reader = TFRecordReader(path, pool)
    assert reader.num_records == 20
    assert len(reader.read(0, 20, lenient)) == 19
    assert [bad.record for bad in lenient.found] == [19]
    assert "cut" in lenient.found[0].reason


def test_a_file_that_shrank_since_its_index_was_made_gives_bad_records(
    tmp_path, pool, lenient
):
    path = write(tmp_path / "file", [bytes(10)] * 20)
    reader = TFRecordReader(path, pool)
    path.write_bytes(path.read_bytes()[: 10 * 26])
    assert len(reader.read(0, 20, lenient)) == 10
    assert len(lenient.found) == 10


def test_an_empty_file_has_no_records(tmp_path, pool, strict):
    reader = TFRecordReader(write(tmp_path / "file", []), pool)
    assert reader.num_records == 0
    assert reader.read(0, 0, strict) == []
    assert reader.metadata.column_names == ()


def test_a_missing_file_is_a_data_error(tmp_path, pool):
    with pytest.raises(DataError, match="cannot be read"):
        TFRecordReader(tmp_path / "none", pool)
