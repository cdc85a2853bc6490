"""Placement: every row on one PS, loads even, the same for everybody."""

from elasticdl.tensor.placement import GradientKind, Layout, Variable, place
from hypothesis import given
from hypothesis import strategies as st

_variables = st.lists(
    st.tuples(
        st.lists(st.integers(1, 40), max_size=3),
        st.sampled_from(list(GradientKind)),
    ),
    max_size=12,
).map(lambda vs: [Variable(f"v{i}", tuple(s), k) for i, (s, k) in enumerate(vs)])


@given(_variables, st.integers(1, 33))
def test_every_row_is_on_exactly_one_ps(variables, num_ps):
    layout = place(variables, num_ps)
    assert layout.num_ps == num_ps
    for index, variable in enumerate(variables):
        rows = sorted(
            row
            for ps in layout.pieces
            for piece in ps
            if piece.variable == index
            for row in range(piece.start, piece.end)
        )
        assert rows == list(range(variable.num_rows))


@given(_variables, st.integers(1, 8))
def test_buffers_have_no_holes_and_begin_with_the_dense_pieces(variables, num_ps):
    layout = place(variables, num_ps)
    for ps, pieces in enumerate(layout.pieces):
        offset = 0
        for piece in pieces:
            variable = layout.variables[piece.variable]
            assert piece.offset == offset
            assert piece.size == (piece.end - piece.start) * variable.row_size
            offset += piece.size
            if variable.kind is GradientKind.DENSE:
                assert offset <= layout.dense_size(ps)
            else:
                assert piece.offset >= layout.dense_size(ps)
        assert offset == layout.size(ps)


@given(_variables, st.integers(1, 8))
def test_layout_survives_json_and_is_deterministic(variables, num_ps):
    layout = place(variables, num_ps)
    assert Layout.from_json(layout.to_json()) == layout
    assert place(variables, num_ps).digest == layout.digest


def test_no_ps_gets_twice_the_load_of_another():
    variables = [
        Variable("embedding", (10_000, 16)),
        Variable("dense", (256, 512)),
        *[Variable(f"bias{i}", (512,)) for i in range(20)],
    ]
    for num_ps in range(1, 33):
        sizes = [place(variables, num_ps).size(ps) for ps in range(num_ps)]
        assert max(sizes) <= 2 * min(sizes), (num_ps, sizes)


def test_all_of_32_ps_get_parameters():  # D12
    variables = [Variable(f"v{i}", (64,)) for i in range(320)]
    layout = place(variables, 32)
    assert all(layout.size(ps) for ps in range(32))
