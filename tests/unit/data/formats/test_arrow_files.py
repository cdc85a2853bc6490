import datetime
import decimal
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.data.formats import example_rows
from elasticdl.data.formats.arrow_files import ArrowReader
from elasticdl.data.formats.chunk_cache import ChunkCache
from elasticdl.data.formats.example import decode_example, encode_example
from elasticdl.data.reader import open_reader
from elasticdl.errors import BadRecordError, DataError
from elasticdl.job.spec.job import DataFormat

FORMATS = [DataFormat.PARQUET, DataFormat.ARROW]
TABLE = pa.table(
    {
        "image": pa.array(
            np.arange(20, dtype=np.float32).reshape(10, 2).tolist(),
            pa.list_(pa.float32(), 2),
        ),
        "label": np.arange(10),
        "name": [f"n{i}" for i in range(10)],
    }
)


def write(path, table, format=DataFormat.PARQUET, rows=3):
    if format is DataFormat.PARQUET:
        pq.write_table(table, path, row_group_size=rows)
        return path
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=rows)
    return path


def open_one(path, format=DataFormat.PARQUET, **params):
    return ArrowReader(path, ChunkCache(), params, format=format)


@pytest.mark.parametrize("format", FORMATS)
def test_each_row_is_an_example_as_a_row_of_numpy_arrays_is(format, tmp_path, strict):
    reader = open_one(write(tmp_path / "data", TABLE, format), format)
    expected = [
        encode_example(
            {
                "image": np.asarray([2 * i, 2 * i + 1], np.float32),
                "label": i,
                "name": f"n{i}",
            }
        )
        for i in range(10)
    ]
    assert reader.num_records == 10
    assert reader.metadata.examples
    assert reader.metadata.column_names == ("image", "label", "name")
    assert reader.metadata.column_dtypes == ("float32", "int64", "bytes")
    assert reader.metadata.extra["shapes"] == {"image": (2,), "label": (), "name": ()}
    for start in range(11):
        for end in range(start, 13):
            assert reader.read(start, end, strict) == expected[start:end]


@pytest.mark.parametrize("format", FORMATS)
def test_columns_can_be_chosen(format, tmp_path, strict):
    path = write(tmp_path / "data", TABLE, format)
    reader = open_one(path, format, columns=["label"])
    assert reader.metadata.column_names == ("label",)
    assert list(decode_example(reader.read(4, 5, strict)[0])) == ["label"]
    assert open_one(path, format, columns="name, label").metadata.column_names == (
        "name",
        "label",
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["labels"], r"no column 'labels', but \['image', 'label', 'name'\]"),
        ([], "expected names"),
        (7, "expected names"),
    ],
)
def test_a_wrong_choice_is_told(columns, message, tmp_path):
    with pytest.raises(DataError, match=message):
        open_one(write(tmp_path / "data", TABLE), columns=columns)


def column_of(values, kind, tmp_path, strict):
    path = write(tmp_path / "data", pa.table({"x": pa.array(values, kind)}))
    rows = open_one(path).read(0, len(values), strict)
    return [list(decode_example(row)["x"]) for row in rows]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.bool_(), [True, False], [[1], [0]]),
        (pa.uint8(), [0, 255], [[0], [255]]),
        (pa.float16(), np.asarray([0.5, 1], np.float16), [[0.5], [1]]),
        (pa.decimal128(5, 2), [decimal.Decimal("1.25")], [[1.25]]),
        (pa.date32(), [datetime.date(1970, 1, 3)], [[2]]),
        (pa.timestamp("ms"), [1500, 2], [[1500], [2]]),
        (pa.duration("s"), [7], [[7]]),
        (pa.large_string(), ["é"], [["é".encode()]]),
        (pa.large_binary(), [b"\0\xff"], [[b"\0\xff"]]),
        (pa.binary(2), [b"ab"], [[b"ab"]]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b"], [[b"a"], [b"b"]]),
        (pa.list_(pa.int64()), [[1, 2], [], [3]], [[1, 2], [], [3]]),
        (pa.list_(pa.int64()), [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (pa.list_(pa.int64()), [[1], [3]], [[1], [3]]),
        (pa.list_(pa.string()), [["a"], ["b", "c"]], [[b"a"], [b"b", b"c"]]),
        (pa.list_(pa.list_(pa.int8())), [[[1], [2, 3]], [[]]], [[1, 2, 3], []]),
    ],
)  # fmt: skip
def test_types_become_features(kind, values, expected, tmp_path, strict):
    assert column_of(values, kind, tmp_path, strict) == expected


def test_a_type_that_no_feature_can_hold_is_told_with_the_way_out(tmp_path):
    table = pa.table({"a": [1], "point": [{"x": 1}]})
    path = write(tmp_path / "data", table)
    with pytest.raises(DataError, match=r"'point' has type struct.*columns, as \['a'"):
        open_one(path)
    assert open_one(path, columns=["a"]).num_records == 1


@pytest.mark.parametrize("format", FORMATS)
def test_rows_with_a_null_are_bad_records(format, tmp_path, strict, lenient):
    table = pa.table(
        {
            "x": [0, None, 2, 3, 4, 5],
            "y": [[0.0], [1.0], [2.0, None], None, [4.0], []],
            "z": pa.array([[0], [1], [2], [3], None, [5]], pa.list_(pa.int8(), 1)),
        }
    )
    reader = open_one(write(tmp_path / "data", table, format, rows=4), format)
    with pytest.raises(BadRecordError, match="column 'x' is null") as raised:
        reader.read(0, 6, strict)
    assert raised.value.record == 1
    rows = [decode_example(row) for row in reader.read(0, 6, lenient)]
    assert [row["x"].tolist() for row in rows] == [[0], [5]]
    assert [(bad.record, bad.reason) for bad in lenient.found] == [
        (1, "column 'x' is null"),
        (2, "column 'y' is null"),
        (3, "column 'y' is null"),
        (4, "column 'z' is null"),
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("cut", [1, 30, -5])
def test_a_cut_file_is_told(format, cut, tmp_path):
    path = write(tmp_path / "data", TABLE, format)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=rf"data: got .*expected a whole {format} file"):
        open_one(path, format)


def test_a_corrupt_row_group_loses_its_rows_and_no_others(tmp_path, strict, lenient):
    path = tmp_path / "data"
    pq.write_table(TABLE, path, row_group_size=4, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    end = column.dictionary_page_offset + column.total_compressed_size
    data = bytearray(path.read_bytes())
    data[end - 1] ^= 0xFF
    path.write_bytes(bytes(data))
    reader = open_one(path)
    with pytest.raises(BadRecordError, match="row group 1 cannot be read"):
        reader.read(2, 9, strict)
    assert len(reader.read(2, 9, lenient)) == 3
    assert [bad.record for bad in lenient.found] == [4, 5, 6, 7]


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_may_have_no_rows(format, tmp_path, strict):
    reader = open_one(write(tmp_path / "data", TABLE.slice(0, 0), format), format)
    assert reader.num_records == 0
    assert reader.read(0, 3, strict) == []


@pytest.mark.parametrize("format", FORMATS)
def test_many_threads_may_read_the_same_file(format, tmp_path, strict):
    reader = open_one(write(tmp_path / "data", TABLE, format), format)
    whole = reader.read(0, 10, strict)
    with ThreadPoolExecutor(8) as threads:
        reads = list(
            threads.map(lambda i: reader.read(i % 7, i % 7 + 3, strict), range(200))
        )
    assert reads == [whole[i % 7 : i % 7 + 3] for i in range(200)]


def test_a_row_group_that_is_kept_is_not_decoded_again(tmp_path, strict):
    path = write(tmp_path / "data", TABLE, rows=100)
    reader = open_one(path)
    first = reader.read(0, 2, strict)
    path.unlink()
    assert reader.read(0, 2, strict) == first


def test_large_row_groups_are_warned_of(tmp_path, caplog):
    large = pa.table({"x": np.zeros(200_000, np.int8)})
    write(tmp_path / "a.parquet", large, rows=90_000)
    open_reader("a.parquet", data_root=tmp_path).shards()
    assert not caplog.messages
    write(tmp_path / "b.parquet", large, rows=200_000)
    open_reader("b.parquet", data_root=tmp_path).shards()
    assert "b.parquet has row groups of 200000 records" in caplog.text


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "data.parquet", TABLE)
    # What Python keeps for a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"install elasticdl\[arrow\]"):
        open_reader("data.parquet", data_root=tmp_path).shards()


@pytest.mark.parametrize("ending", ["", ".parquet", ".pq", ".feather", ".arrow"])
def test_formats_are_found_by_ending_and_content(ending, tmp_path):
    format = DataFormat.ARROW if ending in (".feather", ".arrow") else FORMATS[0]
    write(tmp_path / f"data{ending}", TABLE, format)
    assert open_reader(f"data{ending}", data_root=tmp_path).format is format


def test_several_files_are_read_as_one_source_each(tmp_path):
    for i in range(3):
        write(tmp_path / f"part-{i}.parquet", TABLE.slice(i, i + 1))
    reader = open_reader("*.parquet", data_root=tmp_path)
    assert [shard.num_records for shard in reader.shards()] == [1, 2, 3]


@pytest.mark.parametrize(
    "other",
    [
        TABLE.rename_columns(["image", "labels", "name"]),
        TABLE.drop_columns(["name"]),
        TABLE.set_column(1, "label", pa.array([0.5] * 10)),
        TABLE.set_column(0, "image", pa.array([[1.0]] * 10, pa.list_(pa.float32(), 1))),
    ],
)  # fmt: skip
def test_files_of_different_columns_are_told(other, tmp_path):
    write(tmp_path / "a.parquet", TABLE)
    write(tmp_path / "b.parquet", other)
    reader = open_reader(".", data_root=tmp_path)
    with pytest.raises(DataError, match=r"different columns: a\.parquet .*b\.parquet"):
        reader.shards()


@pytest.mark.parametrize(
    ("one", "other", "units"),
    [
        (pa.timestamp("ms"), pa.timestamp("us"), "in ms .*in us "),
        (pa.timestamp("us", "UTC"), pa.timestamp("ns"), "in us .*in ns "),
        (pa.date32(), pa.date64(), "in days .*in ms "),
        (pa.duration("s"), pa.duration("ms"), "in s .*in ms "),
        (pa.list_(pa.time32("s")), pa.list_(pa.time32("ms")), "in s .*in ms "),
    ],
    ids=str,
)
def test_times_that_count_in_different_units_are_told(one, other, units, tmp_path):
    for name, kind in (("a", one), ("b", other)):
        table = pa.table({"when": pa.array([None], kind), "label": [1]})
        write(tmp_path / f"{name}.arrow", table, DataFormat.ARROW)
    with pytest.raises(DataError, match=f"column 'when' is {units}"):
        open_reader(".", data_root=tmp_path).shards()
    params = {"columns": ["label"]}
    assert open_reader(".", data_root=tmp_path, params=params).shards()


def test_files_may_have_the_same_columns_in_another_order_and_width(tmp_path):
    write(tmp_path / "a.parquet", TABLE)
    other = TABLE.set_column(1, "label", pa.array(range(10), pa.int16()))
    write(tmp_path / "b.parquet", other.select(["name", "label", "image"]))
    assert len(open_reader(".", data_root=tmp_path).shards()) == 2


def test_a_column_that_one_file_lacks_is_told_with_the_file(tmp_path):
    write(tmp_path / "a.parquet", TABLE)
    write(tmp_path / "b.parquet", TABLE.drop_columns(["label"]))
    reader = open_reader(".", data_root=tmp_path, params={"columns": ["label"]})
    with pytest.raises(DataError, match=r"b\.parquet: has no column 'label'"):
        reader.shards()


@pytest.mark.parametrize("format", FORMATS)
def test_text_that_repeats_comes_back_whatever_its_type(format, tmp_path, lenient):
    texts = ["red", "", None, "green", "red", "grün"] * 5
    strings = pa.array(texts)
    table = pa.table(
        {
            "plain": strings,
            "large": strings.cast(pa.large_string()),
            "bytes": strings.cast(pa.binary()),
            "coded": strings.dictionary_encode(),
        }
    )
    reader = open_one(write(tmp_path / "data", table, format, rows=7), format)
    records = reader.read(2, 29, lenient)
    bad = {row for row in range(2, 29) if texts[row] is None}
    assert {found.record for found in lenient.found} == bad
    good = [row for row in range(2, 29) if row not in bad]
    assert len(records) == len(good)
    for row, record in zip(good, records, strict=True):
        text = [(texts[row] or "").encode()]
        names = ("plain", "large", "bytes", "coded")
        assert decode_example(record) == dict.fromkeys(names, text)


def test_a_null_that_is_an_entry_of_a_dictionary_is_a_null(tmp_path, lenient):
    codes, entries = pa.array([0, 1, 2, 0]), pa.array(["a", "b", None])
    table = pa.table({"word": pa.DictionaryArray.from_arrays(codes, entries)})
    path = write(tmp_path / "data", table, DataFormat.ARROW, rows=4)
    records = open_one(path, DataFormat.ARROW).read(0, 4, lenient)
    assert [decode_example(r)["word"] for r in records] == [[b"a"], [b"b"], [b"a"]]
    assert [bad.record for bad in lenient.found] == [2]


def test_a_value_of_text_is_encoded_once_for_its_row_group(
    tmp_path, strict, monkeypatch
):
    table = pa.table({"word": ["a", "b", "c"] * 100})
    reader = open_one(write(tmp_path / "data", table, rows=150))
    encoded = []
    plain = example_rows._text_entries

    def counting(name, values):
        encoded.extend(values)
        return plain(name, values)

    monkeypatch.setattr(example_rows, "_text_entries", counting)
    for start in range(0, 150, 10):
        list(reader.read(start, start + 10, strict))
    assert sorted(encoded) == [b"a", b"b", b"c"]


def test_ids_of_64_bits_without_a_sign_keep_their_bits(tmp_path, strict):
    ids = np.asarray([0, 1 << 63, (1 << 64) - 1, (1 << 63) + 12345], np.uint64)
    reader = open_one(write(tmp_path / "data", pa.table({"id": ids}), rows=4))
    records = reader.read(0, 4, strict)
    stored = np.concatenate([decode_example(record)["id"] for record in records])
    assert np.array_equal(stored.view(np.uint64), ids)
