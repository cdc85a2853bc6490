import hypothesis.strategies as st
import numpy as np
import pytest
from elasticdl.data.formats.example import encode_example
from elasticdl.data.formats.example_rows import encode_rows
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

SHAPES = st.tuples(st.just(3), st.integers(0, 3)) | st.just((3,)) | st.just((3, 2, 2))
DTYPES = st.sampled_from(
    ["f2", "f4", "f8", ">f4", "i1", "u1", "i4", ">i8", "i8", "u8", "?", "S3", "U2"]
)


@settings(deadline=None)
@given(st.data())
def test_rows_together_are_what_each_row_alone_is(data):
    names = data.draw(st.lists(st.text(min_size=1), unique=True, max_size=4))
    columns = {
        name: data.draw(hnp.arrays(data.draw(DTYPES), data.draw(SHAPES)))
        for name in names
    }
    with np.errstate(over="ignore"):
        rows = encode_rows(columns, 3)
        for i, row in enumerate(rows):
            one = {name: column[i] for name, column in columns.items()}
            assert row == encode_example(one)


def test_a_column_may_hold_a_value_of_its_own_for_each_row():
    lists = [np.arange(2), np.arange(0), np.asarray([-1])]
    texts = [b"a", b"", b"\xff" * 200]
    rows = encode_rows({"text": texts, "ids": lists}, 3)
    for i in range(3):
        assert rows[i] == encode_example({"text": texts[i], "ids": lists[i]})


@pytest.mark.parametrize("value", [0, 127, 128, -1, 2**63 - 1, -(2**63)])
def test_integers_of_all_lengths_keep_their_value(value):
    column = np.asarray([value, 1, value])
    assert encode_rows({"x": column}, 3)[0] == encode_example({"x": column[0]})


def test_no_rows_are_no_records():
    assert encode_rows({"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, 0) == []


def test_what_no_feature_can_hold_is_refused():
    with pytest.raises(TypeError, match="expected numbers, bytes or text"):
        encode_rows({"x": np.asarray([1j, 2j])}, 2)
