import struct
import tempfile
import zlib
from pathlib import Path

import pytest
from elasticdl.data.formats import snappy
from elasticdl.data.formats.chunk_cache import ChunkCache
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.recordio import RecordIOReader, RecordIOWriter
from elasticdl.data.formats.recordio_chunks import Compressor
from elasticdl.data.records import BadRecords
from elasticdl.errors import BadRecordError, DataError
from hypothesis import given
from hypothesis import strategies as st

PYRECORDIO_CHUNK_BYTES = 32 * 1024 * 1024
GOLDEN = Path(__file__).parents[3] / "fixtures" / "recordio"


def golden_records():
    text = b"ElasticDL survives the loss of any of its processes. "
    return [text[: i * 7] * (i % 4) for i in range(40)] + [
        bytes(range(256)),
        b"",
        b"0123456789" * 7000,
        b"\x00" * 300,
        b"",
    ]


def short_records():
    return [record for record in golden_records() if len(record) < 5000]


FILES = {
    "none": (short_records(), Compressor.NONE, PYRECORDIO_CHUNK_BYTES),
    "snappy": (golden_records(), Compressor.SNAPPY, PYRECORDIO_CHUNK_BYTES),
    "snappy_chunks": (golden_records()[:40], Compressor.SNAPPY, 400),
    "gzip": (golden_records(), Compressor.GZIP, PYRECORDIO_CHUNK_BYTES),
}


def write(path, records, compressor=Compressor.SNAPPY, chunk_bytes=1000):
    with RecordIOWriter(path, compressor=compressor, chunk_bytes=chunk_bytes) as writer:
        for record in records:
            writer.write(record)
    return path


def numbered(count):
    return [b"record %d" % i for i in range(count)]


@pytest.mark.parametrize("name", FILES)
def test_files_of_pyrecordio_are_read(name, open_recordio, strict):
    records, _, _ = FILES[name]
    reader = open_recordio(GOLDEN / f"{name}.recordio")
    assert reader.num_records == len(records)
    assert reader.read(0, len(records), strict) == records


@pytest.mark.parametrize("name", ["none", "snappy", "snappy_chunks"])
def test_files_are_written_byte_for_byte_as_pyrecordio_writes_them(name, tmp_path):
    records, compressor, chunk_bytes = FILES[name]
    ours = write(tmp_path / "ours", records, compressor, chunk_bytes)
    assert ours.read_bytes() == (GOLDEN / f"{name}.recordio").read_bytes()


@given(
    records=st.lists(st.binary(max_size=300), max_size=60),
    compressor=st.sampled_from(Compressor),
    chunk_bytes=st.integers(1, 2000),
    data=st.data(),
)
def test_any_range_of_any_file_comes_back(records, compressor, chunk_bytes, data):
    start = data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(start, len(records)))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "file", records, compressor, chunk_bytes)
        reader = RecordIOReader(path, FilePool(), ChunkCache())
        assert reader.num_records == len(records)
        strict = BadRecords("file", skip=False)
        assert reader.read(start, end, strict) == records[start:end]


def test_a_range_reads_only_the_chunks_it_touches(
    tmp_path, pool, open_recordio, strict
):
    path = write(tmp_path / "file", numbered(10_000), Compressor.NONE, 1000)
    reader = open_recordio(path)
    pool.reads.clear()
    costs = []
    for start in (0, 5_000, 9_900):
        assert (
            reader.read(start, start + 100, strict)
            == numbered(10_000)[start : start + 100]
        )
        costs.append(pool.num_bytes)
        pool.reads.clear()
    # A hundred records of about 11 bytes, 4 of length each, and the chunks' rests.
    assert max(costs) < 100 * 20 + 2 * 1500


def test_a_chunk_that_two_ranges_share_is_decoded_once(
    tmp_path, pool, open_recordio, strict
):
    reader = open_recordio(write(tmp_path / "file", numbered(50)))
    pool.reads.clear()
    assert reader.read(0, 25, strict) == numbered(50)[:25]
    assert reader.read(25, 50, strict) == numbered(50)[25:]
    assert len(pool.reads) == 1


def test_the_cache_gives_old_chunks_up():
    cache = ChunkCache(most_bytes=1000)
    for offset in range(5):
        cache.put(Path("file"), offset, [bytes(300)], 340)
    assert cache.get(Path("file"), 0) is None
    assert cache.get(Path("file"), 4) == [bytes(300)]


def test_a_chunk_bigger_than_the_cache_is_kept_alone():
    cache = ChunkCache(most_bytes=10)
    cache.put(Path("file"), 0, [bytes(300)], 340)
    cache.put(Path("file"), 0, [b"again"], 45)
    assert cache.get(Path("file"), 0) == [bytes(300)]


def test_a_corrupt_chunk_loses_all_its_records_and_no_others(
    tmp_path, open_recordio, lenient
):
    path = write(tmp_path / "file", numbered(30), Compressor.NONE, 100)
    data = bytearray(path.read_bytes())
    first_size = struct.unpack_from("<5I", data)[3]
    data[20 + first_size + 20 + 6] ^= 0xFF  # in the body of the second chunk
    path.write_bytes(bytes(data))
    reader = open_recordio(path)
    per_chunk = struct.unpack_from("<5I", data)[4]
    values = reader.read(0, 30, lenient)
    lost = [bad.record for bad in lenient.found]
    assert lost == list(range(per_chunk, per_chunk + len(lost)))
    assert values == [r for i, r in enumerate(numbered(30)) if i not in lost]
    assert "CRC" in lenient.found[0].reason


def test_a_corrupt_chunk_is_an_error_that_names_file_and_record(
    tmp_path, open_recordio, strict
):
    path = write(tmp_path / "file", numbered(5))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(BadRecordError, match="file: record 2: the chunk at byte 0"):
        open_recordio(path).read(2, 4, strict)


def test_a_cut_file_is_readable_up_to_the_cut(tmp_path, open_recordio, lenient):
    path = write(tmp_path / "file", numbered(30), Compressor.NONE, 100)
    path.write_bytes(path.read_bytes()[:-5])
    reader = open_recordio(path)
    assert reader.num_records == 30
    values = reader.read(0, 30, lenient)
    assert values == numbered(30)[: len(values)]
    assert len(values) + len(lenient.found) == 30
    assert "cut" in lenient.found[0].reason


def test_a_cut_header_is_one_bad_record(tmp_path, open_recordio, lenient):
    path = write(tmp_path / "file", numbered(3))
    path.write_bytes(path.read_bytes() + b"\x04\x03\x02\x01abc")
    reader = open_recordio(path)
    assert reader.read(0, 4, lenient) == numbered(3)
    assert [bad.record for bad in lenient.found] == [3]
    assert "7 bytes of a chunk header" in lenient.found[0].reason


def test_bytes_that_are_no_chunk_are_one_bad_record(tmp_path, open_recordio, lenient):
    path = write(tmp_path / "file", numbered(3))
    path.write_bytes(path.read_bytes() + b"this is surely not a chunk")
    reader = open_recordio(path)
    assert reader.read(0, 4, lenient) == numbered(3)
    assert "magic" in lenient.found[0].reason


@pytest.mark.parametrize(
    ("compressor", "body", "reason"),
    [
        (1, b"not snappy, though long enough", "snappy"),
        (2, b"not gzip, though long enough", "gzip"),
        (0, b"\x09\x00\x00\x00abcabcabc\x09", "ends inside record 1"),
        (0, b"\x0d\x00\x00\x00abcabcabc\x09", "1 records take 17 bytes, it holds 14"),
    ],
)
def test_a_body_that_is_none_is_corrupt(
    compressor, body, reason, tmp_path, open_recordio, lenient
):
    header = struct.pack("<5I", 0x01020304, zlib.crc32(body), compressor, len(body), 3)
    path = tmp_path / "file"
    path.write_bytes(header + body)
    assert open_recordio(path).read(0, 3, lenient) == []
    assert len(lenient.found) == 3
    assert reason in lenient.found[0].reason


def damaged(path, field, value):
    """Change a field of the second chunk's header."""
    data = bytearray(path.read_bytes())
    at = 20 + struct.unpack_from("<5I", data)[3]
    struct.pack_into("<I", data, at + 4 * field, value)
    path.write_bytes(bytes(data))
    return struct.unpack_from("<5I", path.read_bytes(), at)[4]


MAGIC, CRC, COMPRESSOR, SIZE, COUNT = range(5)


@pytest.mark.parametrize("compressor", Compressor)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        (MAGIC, 0x01020305), (COMPRESSOR, 7), (SIZE, 0), (SIZE, 3), (SIZE, 1 << 31),
        (COUNT, 0), (COUNT, 1 << 31),
    ],
)  # fmt: skip
def test_a_damaged_chunk_header_loses_no_record(
    field, value, compressor, tmp_path, open_recordio, strict
):
    path = write(tmp_path / "file", numbered(300), compressor, 100)
    damaged(path, field, value)
    reader = open_recordio(path)
    assert reader.num_records == 300
    assert reader.read(0, 300, strict) == numbered(300)


@pytest.mark.parametrize("compressor", Compressor)
def test_a_count_that_is_too_low_loses_no_record_whatever_the_ranges(
    compressor, tmp_path, open_recordio
):
    path = write(tmp_path / "file", numbered(30), compressor, 100)
    count = damaged(path, MAGIC, 0x01020304)
    damaged(path, COUNT, count - 2)
    reader = open_recordio(path)
    assert reader.num_records == 28
    for size in (1, 5, 28):
        values, unplanned = [], 0
        for start in range(0, 28, size):
            strict = BadRecords("file", skip=False)
            values += reader.read(start, min(start + size, 28), strict)
            unplanned += strict.unplanned
        assert values == numbered(30)
        assert unplanned == 2


@pytest.mark.parametrize("compressor", Compressor)
def test_a_count_that_is_too_high_lists_only_what_is_not_there(
    compressor, tmp_path, open_recordio, lenient
):
    path = write(tmp_path / "file", numbered(30), compressor, 100)
    count = damaged(path, MAGIC, 0x01020304)
    damaged(path, COUNT, count + 1)
    reader = open_recordio(path)
    assert reader.num_records == 31
    assert reader.read(0, 31, lenient) == numbered(30)
    before = struct.unpack_from("<5I", path.read_bytes())[COUNT]
    assert [bad.record for bad in lenient.found] == [before + count]
    assert "nothing is lost" in lenient.found[0].reason


def test_a_damaged_body_says_that_the_count_of_what_is_lost_cannot_be_known(
    tmp_path, open_recordio, lenient
):
    path = write(tmp_path / "file", numbered(30), Compressor.NONE, 100)
    count = damaged(path, CRC, 1)
    reader = open_recordio(path)
    assert len(reader.read(0, 30, lenient)) == 30 - count
    assert len(lenient.found) == count
    assert f"counts {count} records" in lenient.found[0].reason
    assert "nothing tells whether that count is right" in lenient.found[0].reason


def test_records_behind_garbage_are_found(tmp_path, open_recordio, lenient):
    path = write(tmp_path / "file", numbered(300), Compressor.SNAPPY, 100)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(1000) + data[60:])
    reader = open_recordio(path)
    values = reader.read(0, reader.num_records, lenient)
    assert values == numbered(300)[-len(values) :]
    assert len(values) > 280
    assert len(lenient.found) == 1


def test_an_empty_file_has_no_records(tmp_path, open_recordio):
    path = write(tmp_path / "file", [])
    assert path.read_bytes() == b""
    assert open_recordio(path).num_records == 0


def test_a_missing_file_is_a_data_error(tmp_path, open_recordio):
    with pytest.raises(DataError, match="cannot be read"):
        open_recordio(tmp_path / "none")


def test_a_snappy_stream_is_split_in_frames_of_64_kib():
    pieces = [bytes(200_000), b"", b"tail"]
    stream = snappy.compress(pieces)
    assert snappy.decompress(stream) == b"".join(pieces)
    with pytest.raises(ValueError, match="snappy"):
        snappy.decompress(stream[:-3] + b"xyz")
