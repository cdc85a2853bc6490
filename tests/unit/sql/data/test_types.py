"""Each type of each engine has the kind that docs/sql.md says."""

import datetime
import decimal
import uuid

import duckdb
import pyarrow as pa
import pytest
from elasticdl.errors import DataError
from elasticdl.sql.data import types, types_duckdb
from elasticdl.sql.plan import Column, Kind

DUCKDB = {
    "1::TINYINT": Kind.INTEGER,
    "1::SMALLINT": Kind.INTEGER,
    "1::INTEGER": Kind.INTEGER,
    "1::BIGINT": Kind.INTEGER,
    "1::UTINYINT": Kind.INTEGER,
    "1::USMALLINT": Kind.INTEGER,
    "1::UINTEGER": Kind.INTEGER,
    "1::UBIGINT": Kind.NUMBER,
    "1::HUGEINT": Kind.NUMBER,
    "1::FLOAT": Kind.NUMBER,
    "1::DOUBLE": Kind.NUMBER,
    "1::DECIMAL(18, 3)": Kind.NUMBER,
    "true": Kind.BOOLEAN,
    "'a'": Kind.TEXT,
    "'a'::ENUM('a', 'b')": Kind.TEXT,
    "uuid()": Kind.TEXT,
    "DATE '2026-01-01'": Kind.TIME,
    "TIME '10:00'": Kind.TIME,
    "TIMESTAMP '2026-01-01'": Kind.TIME,
    "TIMESTAMPTZ '2026-01-01'": Kind.TIME,
    "INTERVAL 1 DAY": Kind.TIME,
    "[1, 2]": Kind.ARRAY,
    "['a']": Kind.ARRAY,
    "[1.5, 2]::DOUBLE[2]": Kind.ARRAY,
    "[[1], [2]]": Kind.OTHER,
    "[DATE '2026-01-01']": Kind.OTHER,
    "{'a': 1}": Kind.OTHER,
    "MAP {'a': 1}": Kind.OTHER,
    "'a'::BLOB": Kind.OTHER,
    "'101'::BIT": Kind.OTHER,
    "'{}'::JSON": Kind.OTHER,
}


@pytest.mark.parametrize("value", DUCKDB)
def test_a_type_of_duckdb_has_its_kind(value):
    column = of_duckdb(value)
    assert column.kind is DUCKDB[value], column.stated


def of_duckdb(value):
    (kind,) = duckdb.connect().sql(f"SELECT {value} AS x").types
    return types_duckdb.column("x", kind)


def test_an_array_tells_the_kind_of_its_values():
    assert of_duckdb("NULL::VARCHAR[]").item is Kind.TEXT
    assert of_duckdb("NULL::DOUBLE[3]").item is Kind.NUMBER
    assert types.of_values("x", [["a", None], []]).item is Kind.TEXT


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3], Kind.INTEGER),
        ([2**63], Kind.NUMBER),
        ([-(2**63)], Kind.NUMBER),  # it stands for NULL
        ([1, 2.5], Kind.NUMBER),
        ([True, None], Kind.BOOLEAN),
        ([decimal.Decimal("1.50")], Kind.NUMBER),
        ([1, "a"], Kind.TEXT),
        ([uuid.UUID(int=1)], Kind.TEXT),
        ([datetime.date(2026, 1, 1)], Kind.TIME),
        ([datetime.timedelta(hours=1)], Kind.TIME),
        ([datetime.datetime(2026, 1, 1)], Kind.TIME),  # noqa: DTZ001
        ([[1, 2], None], Kind.ARRAY),
        ([[[1]]], Kind.OTHER),
        ([b"x"], Kind.OTHER),
        ([{"a": 1}], Kind.OTHER),
        ([None, None], Kind.TEXT),
        ([], Kind.TEXT),
    ],
)
def test_values_of_a_driver_have_their_kind(values, kind):
    assert types.of_values("x", values).kind is kind


def test_a_later_value_of_another_type_is_named_with_its_column():
    column = Column("age", Kind.INTEGER)
    with pytest.raises(DataError, match=r"column `age`: got 'old' .* expected integer"):
        types.to_arrow(pa, column, [1, None, "old"], pa.int64())


@pytest.mark.parametrize("odd", ["1_000", "2.5", "inf"])
def test_a_later_text_among_numbers_is_named_whatever_is_in_it(odd):
    column = Column("pay", Kind.NUMBER)
    with pytest.raises(DataError, match=rf"`pay`: got '{odd}' .* expected number"):
        types.to_arrow(pa, column, [1.5, 3, odd], pa.float64())


@pytest.mark.parametrize("odd", [2.5, float("inf"), float("nan")])
@pytest.mark.parametrize("array", [False, True])
def test_a_later_fraction_among_integers_is_not_cut_off(odd, array):
    column = Column("ids", Kind.INTEGER)
    kind, values = pa.int64(), [1, 3.0, odd]
    if array:
        column = Column("ids", Kind.ARRAY, item=Kind.INTEGER)
        kind, values = pa.list_(kind), [[1], None, [3.0, None], [odd]]
    with pytest.raises(DataError, match=r"`ids`: got .*expected (array of )?integer"):
        types.to_arrow(pa, column, values, kind)
    assert types.to_arrow(pa, column, values[:-1], kind).to_pylist()[0] == values[0]


def test_decimals_in_an_array_are_numbers():
    values = [[decimal.Decimal("1.5"), None], None]
    column = types.of_values("x", values)
    found = types.to_arrow(pa, column, values, types.arrow_type(pa, column))
    assert found.to_pylist() == [[1.5, None], None]


def test_numbers_among_text_are_text():
    column = Column("x", Kind.TEXT)
    assert types.to_arrow(pa, column, ["a", 2, None], pa.string()).to_pylist() == [
        "a", "2", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["a", 1], "as text"),
        (["a", b"a"], "as text"),
        ([datetime.time(1, tzinfo=datetime.UTC)], "as text"),
        ([{"a": 1}], "as text"),
        (["a", None], ""),
        ([b"a", None], ""),
        ([1, 2.5], ""),
        ([datetime.timedelta(hours=1)], ""),
        ([None], ""),
    ],
)
def test_values_that_a_table_would_give_otherwise_are_lost(values, why):
    lost = types.of_values("x", values).lost
    assert why in lost
    assert bool(lost) == bool(why)


@pytest.mark.parametrize(
    ("values", "rounded"),
    [
        ([1, 2.5], False),
        ([2.5, 2**53 + 1], True),
        ([2**64 - 1, 1], True),
        ([2**64], False),
        ([decimal.Decimal("1.5")], True),
        ([2**53 + 1], False),  # an integer
    ],
)
def test_a_number_that_a_double_has_not_is_told(values, rounded):
    assert types.of_values("x", values).rounded is rounded


def test_a_time_span_is_lost_where_the_engine_has_none():
    assert types.of_values("x", [datetime.timedelta(1)], spans=False).lost
