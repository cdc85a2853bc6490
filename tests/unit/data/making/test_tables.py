import pytest
from elasticdl.data.making.tables import ColumnType, cell_type, column_types


@pytest.mark.parametrize("cell", ["0", "-5", "+7", " 12 ", "18446744073709551615"])
def test_integers(cell):
    assert cell_type(cell) is ColumnType.INTEGER


@pytest.mark.parametrize(
    "cell",
    [
        "",
        " ",
        "1.",
        ".5",
        "0.5",
        "-2e-3",
        "NaN",
        "-inf",
        "18446744073709551616",
        "1" * 50,
    ],
)
def test_floats(cell):
    assert cell_type(cell) is ColumnType.FLOAT


@pytest.mark.parametrize(
    "cell", ["007", "1_000", "1,5", "abc", "1e", "٣", "0x1f", "--1"]
)
def test_text(cell):
    assert cell_type(cell) is ColumnType.TEXT


def test_a_column_has_the_widest_type_of_its_cells():
    rows = [["1", "1", "1"], ["2", "2.5", "x"], ["3", "3", "3"]]
    assert column_types(rows, ["a", "b", "c"]) == [
        ColumnType.INTEGER,
        ColumnType.FLOAT,
        ColumnType.TEXT,
    ]
