import csv
import io
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from elasticdl.data.formats import csv_lines, csv_scan
from elasticdl.data.formats.csv_lines import CsvOptions, CsvReader
from elasticdl.data.formats.files import FilePool
from elasticdl.data.records import BadRecords
from elasticdl.errors import BadRecordError, DataError
from hypothesis import given
from hypothesis import strategies as st


def reader_of(folder, content, pool, **options):
    path = Path(folder) / "table.csv"
    path.write_bytes(content)
    return CsvReader(path, pool, CsvOptions(**options))


def all_of(reader, bad):
    return reader.read(0, reader.num_records, bad)


def test_the_header_names_the_columns_and_is_no_record(tmp_path, pool, strict):
    reader = reader_of(tmp_path, b"age, label\n1,2\n3,4\n", pool)
    assert reader.metadata.column_names == ("age", "label")
    assert all_of(reader, strict) == [b"1,2", b"3,4"]


@pytest.mark.parametrize(
    ("first", "warns"), [(b"5.1,setosa", "5.1"), (b"age,label", ""), (b"0,1", "")]
)
def test_a_first_line_of_numbers_is_no_header_without_a_word(
    tmp_path, pool, caplog, first, warns
):
    reader_of(tmp_path, first + b"\n3.5,virginica\n", pool)
    told = f"one is {warns}; if the first line is data, set readerParams.header to"
    assert (told in caplog.text) == bool(warns)
    assert bool(caplog.text) == bool(warns)


def test_without_a_header_the_first_line_is_a_record(tmp_path, pool, strict):
    reader = reader_of(tmp_path, b"1,2\n3,4\n", pool, header=False)
    assert reader.metadata.column_names == ()
    assert all_of(reader, strict) == [b"1,2", b"3,4"]


def test_columns_may_be_named_where_there_is_no_header(tmp_path, pool):
    reader = reader_of(tmp_path, b"1,2\n", pool, header=False, columns=("a", "b"))
    assert reader.metadata.column_names == ("a", "b")


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n3,4\n",
        b"a,b\n1,2\n3,4",
        b"a,b\r\n1,2\r\n3,4\r\n",
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b"a,b\n\n1,2\r\n\r\n\n3,4\n\n\n",
        b"\n\r\na,b\n1,2\n3,4\n\r",
    ],
    ids=["plain", "no last newline", "CRLF", "mark", "blank lines", "blank ends"],
)
def test_line_ends_marks_and_blank_lines_do_not_matter(content, tmp_path, pool, strict):
    reader = reader_of(tmp_path, content, pool)
    assert reader.metadata.column_names == ("a", "b")
    assert all_of(reader, strict) == [b"1,2", b"3,4"]


def test_a_quoted_newline_stays_in_its_record(tmp_path, pool, strict):
    content = b'a,b\n1,"two\nlines, ""quoted"""\r\n"3\r\n",4\n'
    reader = reader_of(tmp_path, content, pool)
    records = all_of(reader, strict)
    assert records == [b'1,"two\nlines, ""quoted"""', b'"3\r\n",4']
    assert CsvOptions().split(records[0].decode()) == ["1", 'two\nlines, "quoted"']


cells = st.text(alphabet='ab,"\n\r 1é', max_size=6)


@given(
    rows=st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=20),
    line_end=st.sampled_from(["\n", "\r\n"]),
    block_bytes=st.integers(1, 40),
)
def test_what_the_csv_module_writes_comes_back(rows, line_end, block_bytes):
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows(rows)
    usual = csv_scan._BLOCK_BYTES
    try:
        # Blocks end anywhere: inside quotes, between \r and \n, inside a character.
        csv_scan._BLOCK_BYTES = block_bytes
        with tempfile.TemporaryDirectory() as folder:
            content = text.getvalue().encode()
            reader = reader_of(folder, content, FilePool(), header=False)
            records = all_of(reader, BadRecords("file", skip=False))
    finally:
        csv_scan._BLOCK_BYTES = usual
    assert [CsvOptions().split(record.decode()) for record in records] == rows


def test_a_range_is_one_read_of_its_own_bytes(tmp_path, pool, strict):
    lines = [b"%05d,x" % i for i in range(10_000)]
    reader = reader_of(tmp_path, b"n,x\n" + b"\n".join(lines), pool)
    reader.read(0, 1, strict)
    for start in (0, 5_000, 9_000):
        pool.reads.clear()
        assert reader.read(start, start + 100, strict) == lines[start : start + 100]
        assert pool.num_bytes == 800


def test_a_wrong_number_of_columns_is_a_bad_record(tmp_path, pool, lenient):
    reader = reader_of(tmp_path, b"a,b\n1,2\n1,2,3\n4\n5,6\n", pool)
    assert all_of(reader, lenient) == [b"1,2", b"5,6"]
    assert [bad.record for bad in lenient.found] == [1, 2]
    assert "got 3 columns, expected 2" in lenient.found[0].reason


def test_without_names_the_first_line_tells_the_number_of_columns(
    tmp_path, pool, strict
):
    reader = reader_of(tmp_path, b"1,2\n3\n", pool, header=False)
    with pytest.raises(BadRecordError, match="record 1: got 1 columns, expected 2"):
        all_of(reader, strict)


def test_a_quote_that_is_not_closed_loses_its_own_line_alone(tmp_path, pool, lenient):
    content = b'a,b\n1,2\n5,"6\n7,"8, 9"\n9,"x\ny"\n1,"2\n3,4\n'
    reader = reader_of(tmp_path, content, pool)
    assert all_of(reader, lenient) == [b"1,2", b'7,"8, 9"', b'9,"x\ny"', b"3,4"]
    assert [bad.record for bad in lenient.found] == [1, 4]
    assert "a quote is not closed" in lenient.found[0].reason


def test_a_quote_inside_an_unquoted_field_is_a_character(tmp_path, pool, strict):
    lines = [b'1,5" pipe', b'2,"two\nlines"', b'3,6"" pipe"', b"4,x"]
    reader = reader_of(tmp_path, b"a,b\n" + b"\n".join(lines) + b"\n", pool)
    assert all_of(reader, strict) == lines


def lines_with_one_byte_changed():
    lines = [b'%d,"text %d, ""said""",%d' % (n, n, n) for n in range(200)]
    content = b"\n".join(lines) + b"\n"
    for place in range(0, len(content), 7):
        for byte in b'",\n\x00x':
            if content[place] != byte:
                yield lines, content[:place] + bytes([byte]) + content[place + 1 :]


def test_one_changed_byte_loses_no_more_than_the_records_it_touches(tmp_path):
    # A newline that is no more joins two records: these both are gone.
    path = tmp_path / "table.csv"
    for lines, content in lines_with_one_byte_changed():
        path.write_bytes(content)
        offsets = csv_scan.scan(path, quote='"', delimiter=",").tolist()
        found = {content[a:b].rstrip(b"\n") for a, b in pairwise(offsets)}
        assert len(set(lines) - found) <= 2
        assert len(offsets) - 1 in (199, 200, 201)


@given(
    content=st.text(alphabet='a,"\n\r', max_size=60),
    block_bytes=st.integers(1, 20),
)
def test_where_blocks_end_does_not_matter(content, block_bytes):
    usual = csv_scan._BLOCK_BYTES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(b"x,y\n" + content.encode())
        whole = csv_scan.scan(path, quote='"', delimiter=",")
        try:
            csv_scan._BLOCK_BYTES = block_bytes
            in_blocks = csv_scan.scan(path, quote='"', delimiter=",")
        finally:
            csv_scan._BLOCK_BYTES = usual
    assert in_blocks.tolist() == whole.tolist()


def test_a_record_that_is_too_long_is_bad_and_is_never_read(
    tmp_path, pool, lenient, monkeypatch
):
    monkeypatch.setattr(csv_scan, "LONGEST_RECORD", 1000)
    monkeypatch.setattr(csv_lines, "LONGEST_RECORD", 1000)
    monkeypatch.setattr(csv_scan, "_BLOCK_BYTES", 300)
    long = b'2,"' + b"x\n" * 2000
    reader = reader_of(tmp_path, b"a,b\n1,2\n3," + bytes(5000) + b"\n" + long, pool)
    values = all_of(reader, lenient)
    assert values == [b"1,2"]
    assert "a line of 5003 bytes, expected at most 1000" in lenient.found[0].reason
    assert max(length for _, length in pool.reads) <= 4000 + 3
    # The unclosed quote is given up, so each line behind it is a record of its own.
    assert reader.num_records == 2 + 2000


def test_a_long_quoted_field_is_a_record(tmp_path, pool, strict):
    record = b'1,"' + b"long \n" * 100_000 + b'"'
    reader = reader_of(tmp_path, b"a,b\n" + record + b"\n2,3\n", pool)
    assert all_of(reader, strict) == [record, b"2,3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'a,"b\n1,2\n3,4\n', "the header is not CSV: a quote is not closed"),
        (b"a,b,a\n1,2,3\n", "the header names 'a' 2 times"),
        (b"a,b\r1,2\r3,4\r", r"carriage returns alone.*tr "),
    ],
)
def test_a_file_that_cannot_be_read_right_is_refused(content, message, tmp_path, pool):
    with pytest.raises(DataError, match=message):
        reader_of(tmp_path, content, pool)


def test_a_first_line_that_is_no_csv_is_refused_where_it_counts(tmp_path, pool, strict):
    reader = reader_of(tmp_path, b'1,"2\n3,4\n', pool, header=False)
    with pytest.raises(DataError, match=r"not CSV.*readerParams.columns"):
        all_of(reader, strict)


def test_without_a_quote_character_quotes_are_text(tmp_path, pool, strict):
    reader = reader_of(tmp_path, b'a,b\n1,5"\n2,"3\n', pool, quote="")
    assert all_of(reader, strict) == [b'1,5"', b'2,"3']


def test_text_that_is_not_utf8_is_a_bad_record(tmp_path, pool, lenient):
    reader = reader_of(tmp_path, b"a,b\n1,\xff\n2,3\n", pool)
    assert all_of(reader, lenient) == [b"2,3"]
    assert "not UTF-8" in lenient.found[0].reason


def test_what_the_csv_module_refuses_is_a_bad_record(tmp_path, pool, lenient):
    reader = reader_of(tmp_path, b'a,b\n"1"\rx,2\n2,3\n', pool)
    assert all_of(reader, lenient) == [b"2,3"]
    assert "not CSV" in lenient.found[0].reason


def test_other_encodings_are_refused_with_the_way_out(tmp_path, pool):
    with pytest.raises(DataError, match=r"UTF-16.*iconv"):
        reader_of(tmp_path, "a,b\n1,2\n".encode("utf-16"), pool)
    with pytest.raises(DataError, match="header is not UTF-8"):
        reader_of(tmp_path, b"a,\xff\n1,2\n", pool)


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"\n\n"])
def test_a_file_without_lines_has_no_records(content, tmp_path, pool, strict):
    reader = reader_of(tmp_path, content, pool)
    assert reader.num_records == 0
    assert all_of(reader, strict) == []


def test_columns_that_contradict_the_header_are_refused(tmp_path, pool):
    with pytest.raises(DataError, match="header names"):
        reader_of(tmp_path, b"a,b\n1,2\n", pool, columns=("x", "y"))


def test_a_tab_may_be_written_in_words():
    assert CsvOptions.from_params({"delimiter": "tab"}).delimiter == "\t"
    assert CsvOptions.from_params({"delimiter": "\\t"}).delimiter == "\t"


def test_params_are_read_in_the_forms_that_flags_give():
    options = CsvOptions.from_params(
        {"header": "False", "columns": "a, b", "quote": "", "delimiter": ";"}
    )
    assert options == CsvOptions(";", header=False, columns=("a", "b"), quote="")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delimiter": ";;"}, "delimiter: got ';;', expected one ASCII"),
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": "é"}, "delimiter"),
        ({"header": "maybe"}, "header: got 'maybe', expected true or false"),
        ({"columns": [1, 2]}, "columns"),
        ({"columns": ["a", "b", "a"]}, "got 'a' 2 times"),
        ({"delimiter": '"'}, "both"),
    ],
)
def test_wrong_params_are_named(params, message):
    with pytest.raises(DataError, match=message):
        CsvOptions.from_params(params)
