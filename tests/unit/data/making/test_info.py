import numpy as np
import pytest
from elasticdl.data.formats.example import encode_example
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.making.info import describe
from elasticdl.errors import DataError


def write(path, records):
    with RecordIOWriter(path) as writer:
        for record in records:
            writer.write(record)


def test_counts_sizes_and_first_records_are_told(tmp_path):
    example = encode_example(
        {"image": np.arange(20.0), "label": 2**60, "name": b"cat", "ids": [1, 2]}
    )
    write(tmp_path / "a.recordio", [example] * 5)
    write(tmp_path / "b.recordio", [])
    found = describe(".", data_root=tmp_path, num_first=2)
    assert [(file.source, file.num_records) for file in found.files] == [
        ("a.recordio", 5),
        ("b.recordio", 0),
    ]
    assert found.num_records == 5
    assert found.num_bytes == (tmp_path / "a.recordio").stat().st_size
    assert found.first[0] == (
        "ids: int64[2] 1 2",
        "image: float[20] 0 1 2 3 4 5 6 7 ...",
        f"label: int64[1] {2**60}",
        "name: bytes[1] b'cat'",
    )
    assert len(found.first) == 2


def test_csv_records_are_shown_by_column(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n")
    found = describe("t.csv", data_root=tmp_path)
    assert found.first == (("a: 1", "b: x"),)
    assert found.metadata.column_names == ("a", "b")
    found = describe("t.csv", data_root=tmp_path, params={"header": False})
    assert found.first[0] == ("column 0: a", "column 1: b")


def test_other_records_are_shown_as_bytes(tmp_path):
    write(tmp_path / "a.recordio", [b"plain words", bytes(100)])
    first = describe("a.recordio", data_root=tmp_path).first
    assert first[0] == ("11 bytes: b'plain words'",)
    assert first[1][0].startswith("100 bytes: b'\\x00")
    assert first[1][0].endswith("...")


def test_bad_records_are_listed(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n")
    found = describe("t.csv", data_root=tmp_path)
    assert [bad.record for bad in found.bad] == [1]


def test_no_records_are_an_error(tmp_path):
    write(tmp_path / "a.recordio", [])
    with pytest.raises(DataError, match="no records"):
        describe("a.recordio", data_root=tmp_path)
