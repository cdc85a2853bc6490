"""Rows that show their columns are the same records as their Examples."""

import numpy as np
from elasticdl.data.formats.example_rows import Distinct, Texts, encode_rows
from elasticdl.data.formats.row_table import RowTable, joined
from elasticdl.worker.tasks.records import permuted


def table(num_rows: int, first: int = 0) -> RowTable:
    numbers = np.arange(first, first + num_rows)
    words = Distinct([b"a", b"bb", b"ccc"])
    columns = {
        "number": numbers,
        "part": numbers / 4,
        "word": Texts(words, numbers % 3),
        "pair": np.stack([numbers, numbers], axis=1),
        "ragged": [list(range(n % 3)) for n in numbers.tolist()],
    }
    return RowTable(columns, num_rows)


def test_a_table_is_the_list_of_its_rows_as_examples() -> None:
    rows = table(7)
    assert list(rows) == encode_rows(rows.columns, 7)
    assert len(rows) == 7
    assert rows == list(rows)
    assert rows[3] == list(rows)[3]
    assert rows[-1] == list(rows)[-1]


def test_a_slice_and_a_permutation_are_those_of_the_list() -> None:
    rows = table(9)
    assert rows[2:6] == list(rows)[2:6]
    assert rows[::2] == list(rows)[::2]
    order = np.asarray([4, 0, 8])
    assert rows.take(order) == [list(rows)[n] for n in order]
    assert permuted(rows, 3) == permuted(list(rows), 3)


def test_joined_tables_are_the_rows_of_one_after_the_other() -> None:
    one, other = table(4), table(5, first=4)
    assert joined([one, other]) == list(one) + list(other)
    assert joined([one[:2], one[2:]]) == one
    assert joined([one]) is one
