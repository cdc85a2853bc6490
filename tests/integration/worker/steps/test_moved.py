"""State of layers that portions of a step move, put together as Keras moves it."""

import warnings

import keras
import numpy as np
import pytest
from elasticdl.model.measures.moves import Movement, growing
from elasticdl.model.variables import NamedVariable
from elasticdl.worker.group.moved import MovedState

ROWS = (5, 7)  # of the portions of each step


@pytest.mark.parametrize(
    ("dtype", "begin", "sums", "expected"),
    [
        ("int64", 2**53 + 1, False, 2**53 + 11),
        ("int64", 2**60, True, 2**60 + 120),
        ("int64", 1_764_000_000_000_000_001, False, 1_764_000_000_000_000_011),
        ("uint64", 2**63 + 5, False, 2**63 + 15),
        ("uint64", 2**63 + 5, True, 2**63 + 125),
        ("uint8", 250, False, 4),
        ("uint8", 253, True, (253 + 120) % 256),
        ("uint32", 2**32 - 10, True, 110),
        ("int32", 2**31 - 3, False, -(2**31) + 7),
    ],
)
def test_integers_of_layers_lose_nothing_in_a_group(dtype, begin, sums, expected):
    """Large ones too; and what overflows begins again without a warning."""
    variable = keras.Variable(np.array(begin, dtype), dtype=dtype, trainable=False)
    moved = MovedState([NamedVariable("count", variable)])
    moved.moves_by([Movement(adds=sums)])
    moved.begin()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(10):
            total = np.zeros(moved.size, np.float32)
            for rows in ROWS:
                moved.rewind()
                by = np.array([rows if sums else 1], dtype)
                variable.assign((variable.numpy().reshape(1) + by).reshape(()))
                moved.add(total, rows, of=sum(ROWS))
            moved.apply(total, sum(ROWS), of=sum(ROWS))
            moved.begin()
    assert int(variable.numpy()) == expected


def test_integers_of_layers_count_down_too():
    variable = keras.Variable(np.array([3, 4], "uint16"), dtype="uint16")
    moved = MovedState([NamedVariable("left", variable)])
    moved.begin()
    total = np.zeros(moved.size, np.float32)
    for rows in ROWS:
        moved.rewind()
        variable.assign(variable.numpy() - np.array([2, 0], "uint16"))
        moved.add(total, rows, of=sum(ROWS))
    moved.apply(total, sum(ROWS), of=sum(ROWS))
    np.testing.assert_array_equal(variable.numpy(), [1, 4])


@pytest.mark.parametrize(
    ("dtype", "begin"),
    [
        ("int32", 2**31 - 1),
        ("int64", 2**63 - 1),
        ("int32", 10**9),
        ("float32", 1e9),
        ("float32", float(np.finfo(np.float32).max)),
        ("float32", float("inf")),
        ("float64", 1e300),
    ],
)
def test_a_smallest_value_that_begins_very_large_is_the_mean_of_what_was_seen(
    dtype, begin
):
    """Two portions saw 5 and 8; distances of that size have no such digits."""
    variable = keras.Variable(np.array(begin, dtype), dtype=dtype, trainable=False)
    moved = MovedState([NamedVariable("least", variable)])
    moved.begin()
    total = np.zeros(moved.size, np.float32)
    for seen, rows in ((5, 4), (8, 8)):
        moved.rewind()
        variable.assign(np.array(seen, dtype))
        moved.add(total, rows, of=sum(ROWS))
    moved.apply(total, 12, of=12)
    assert float(variable.numpy()) == 7


@pytest.mark.parametrize(
    ("dtype", "begin", "made", "mean"),
    [
        ("uint8", 0, (120, 136), 128),
        ("uint8", 255, (200, 100), 150),
        ("uint16", 65535, (300, 40000), 20150),
        ("uint32", 0, (3 * 10**9, 10**9), 2 * 10**9),
        ("int8", 0, (-128, 120), -4),
        ("int64", 0, (1_764_356_401_017, 1_764_356_401_019), 1_764_356_401_018),
        ("int64", 0, (2**62 + 12345,) * 2, 2**62 + 12345),
        ("float32", 3.4e38, (3.0, 3.4e38), 1.7e38),
        ("float32", 3.4e38, (3.4e38, 3.4e38), 3.4e38),
        ("float32", 0.0, (1e38, 1e38), 1e38),
    ],
)
def test_a_mean_over_portions_is_one_of_their_values(dtype, begin, made, mean):
    """Whatever a type's range, and wherever in it the step began."""
    variable = keras.Variable(np.array(begin, dtype), dtype=dtype, trainable=False)
    moved = MovedState([NamedVariable("seen", variable)])
    moved.begin()
    total = np.zeros(moved.size, np.float32)
    for value in made:
        moved.rewind()
        variable.assign(np.array(value, dtype))
        moved.add(total, 6, of=12)
    moved.apply(total, 12, of=12)
    assert float(variable.numpy()) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "value", "rows"),
    [
        ("int64", -1, (70_001,)),
        ("int64", -1, (35_000, 35_001)),
        ("int64", -1, (4_097,) * 17),
        ("int32", -1, (80_001, 80_001, 3)),
        ("int64", 2**62 + 12345, (16_777_216,)),
    ],
)
def test_integers_stay_as_they_are_in_steps_of_very_many_records(dtype, value, rows):
    variable = keras.Variable(np.array(value, dtype), dtype=dtype, trainable=False)
    moved = MovedState([NamedVariable("none_yet", variable)])
    moved.begin()
    total = np.zeros(moved.size, np.float32)
    for number in rows:
        moved.add(total, number, of=sum(rows))
    moved.apply(total, sum(rows), of=sum(rows))
    assert int(variable.numpy()) == value


def stepped(moved, variable, values):
    """Make a step of portions of a record each, which make these values."""
    total = np.zeros(moved.size, np.float32)
    for value in values:
        moved.rewind()
        variable.assign(np.array(value, variable.dtype))
        moved.add(total, 1, of=len(values))
    moved.apply(total, len(values), of=len(values))
    moved.begin()
    return variable.numpy()


def summing(dtype, begin):
    variable = keras.Variable(np.array(begin, dtype), dtype=dtype, trainable=False)
    moved = MovedState([NamedVariable("layer/sum", variable)])
    moved.moves_by([Movement(adds=True, grows=True, surely=True)])
    moved.begin()
    return moved, variable


@pytest.mark.parametrize("portions", [2, 3, 16])
@pytest.mark.parametrize("dtype", ["int16", "uint32", "int64", "float32", "float64"])
def test_a_sum_that_portions_set_to_zero_is_zero(dtype, portions, caplog):
    moved, variable = summing(dtype, 1001)
    assert stepped(moved, variable, [0] * portions) == 0
    assert stepped(moved, variable, [3] * portions) == 3 * portions
    (said,) = caplog.messages
    assert "layer/sum got smaller in this step, where it begins anew" in said


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_sum_that_gets_below_zero_stays_a_sum(dtype, caplog):
    """Each record that was tried may have made it larger by chance."""
    moved, variable = summing(dtype, 10)
    for added in (-3, -8, -5, 2, -7):
        old = int(variable.numpy())
        assert stepped(moved, variable, [old + added] * 2) == old + 2 * added
    (said,) = caplog.messages
    assert "does not begin anew" in said


@pytest.mark.parametrize("portions", [2, 3])
def test_signed_sums_begin_anew_with_the_count_beside_them(portions, caplog):
    """As moments in one vector do: their number of records grows alone."""
    moved, variable = summing("float32", [480.0, -7.0, 96.0])
    grows = np.array([True, False, True])
    moved.moves_by([Movement(adds=True, grows=grows, surely=grows)])
    other, _ = summing("float32", [480.0, -7.0, 96.0])
    other.take(moved.described())
    assert other.described() == moved.described()
    one = [16.0, -2.0, 3.0]
    expected = np.multiply(one, portions)
    np.testing.assert_allclose(stepped(moved, variable, [one] * portions), expected)
    (said,) = caplog.messages
    assert "begins anew" in said
    more = [[32.0, -30.0, 5.0]] * portions
    added = expected + portions * (np.array(more[0]) - expected)
    variable.assign(expected)
    moved.begin()
    np.testing.assert_allclose(stepped(moved, variable, more), added)


@pytest.mark.parametrize("portions", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_signed_sums_begin_anew_with_the_count_of_their_layer(portions, dtype, caplog):
    """Moments in variables of their own; what another layer sums up goes on."""
    names = ("a/count", "a/total", "a/minus", "a/goes_on", "b/total")
    begin = np.array([480, 30, -70, 900, 30], dtype)
    made = np.array([16, -2, 5, 903, -2], dtype)
    variables = [keras.Variable(one, dtype=dtype, trainable=False) for one in begin]
    moved = MovedState(list(map(NamedVariable, names, variables)))
    counts, signed = Movement(True, grows=True, surely=True), Movement(True)
    moved.moves_by([counts, *[signed] * 4])
    moved.begin()
    total = np.zeros(moved.size, np.float32)
    for _ in range(portions):
        moved.rewind()
        for variable, value in zip(variables, made, strict=True):
            variable.assign(value)
        moved.add(total, 1, of=portions)
    moved.apply(total, portions, of=portions)
    added = begin + portions * (made - begin)
    expected = [*portions * made[:3], *added[3:]]
    np.testing.assert_allclose([v.numpy() for v in variables], expected)
    told = [one.replace("this state", "it") for one in caplog.messages]
    words = [[name in one for name in names] for one in told]
    assert words == np.eye(4, 5, dtype=bool).tolist()
    assert ["so does not it" in one for one in told] == [False, False, False, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_sum_of_16_bits_is_not_said_to_be_smaller_for_its_digits(dtype, caplog):
    moved, variable = summing(dtype, 100.0)
    moved.moves_by([Movement(adds=True, keeps=0.9, grows=True, surely=True)])
    made = float(np.array(0.9, variable.numpy().dtype)) * 100 - 0.25
    stepped(moved, variable, [made] * 3)
    assert not caplog.messages


def test_a_decayed_sum_of_few_records_is_not_begun_anew(caplog):
    moved, variable = summing("float32", 100)
    moved.moves_by([Movement(adds=True, keeps=0.9, grows=True, surely=True)])
    assert stepped(moved, variable, [90, 91]) == pytest.approx(91)
    assert not caplog.messages


@pytest.mark.parametrize("seed", range(5))
def test_signed_sums_by_codes_are_never_begun_anew(seed):
    """Of most codes the few records that are tried one by one tell nothing."""
    random = np.random.default_rng(seed)
    keeps, codes, width = np.float32(0.8), 16, 4

    def sums(records):
        found = np.zeros((codes, width), np.float32)
        features = random.normal(size=(records, width)).astype(np.float32)
        np.add.at(found, random.integers(0, codes, records), features)
        return found.reshape(-1)

    old = 0.05 * random.normal(size=codes * width).astype(np.float32)
    moved, variable = summing("float32", old)
    tried = [keeps * old + sums(1) for _ in range(8)]
    movement = Movement(adds=True, keeps=keeps)
    moved.moves_by([growing(movement, old, tried, "float32")])
    for _ in range(30):
        added = [sums(8) for _ in range(6)]
        made = stepped(moved, variable, [keeps * old + one for one in added])
        true = keeps * old + np.sum(added, axis=0)
        np.testing.assert_allclose(made, true, rtol=1e-4, atol=1e-4)
        old = made


@pytest.mark.parametrize("seed", range(5))
def test_counts_by_codes_begin_anew_also_where_no_tried_record_was(seed):
    random = np.random.default_rng(seed)
    tried = [np.eye(16, dtype=np.float32)[random.integers(0, 4)] for _ in range(8)]
    found = growing(Movement(adds=True), np.zeros(16, np.float32), tried, "float32")
    moved, variable = summing("float32", np.arange(100, 116))
    moved.moves_by([found])
    np.testing.assert_array_equal(
        stepped(moved, variable, [np.arange(16)] * 3), 3 * np.arange(16)
    )
