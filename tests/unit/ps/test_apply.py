"""Claims about applying a gradient to all that a PS holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import reshard, store
from elasticdl.checkpoint.layout import AVERAGE, Manifest
from elasticdl.ps.apply import (
    Gradient,
    ParameterShard,
    Span,
    apply_gradient,
    dense_spans,
    mean_gradient,
    split,
)
from elasticdl.ps.optimizers.optimizer import Optimizer, optimizer_from_json
from elasticdl.tensor.placement import GradientKind, Layout, Piece, Variable, place

from tests.unit.ps.optimizers.cases import CASES, case, make, tree

F = np.float32


VARIABLES = (
    Variable("a/kernel", (30, 4)),
    Variable("a/bias", (4,)),
    Variable("b/kernel", (4, 3)),
    Variable("table", (50, 3), GradientKind.ROWWISE),
    Variable("frozen", (6,), GradientKind.FROZEN),
)


def new_shard(optimizer: Optimizer, layout: Layout, ps: int) -> ParameterShard:
    size = layout.size(ps)
    values = np.random.default_rng(ps).standard_normal(size).astype(F)
    return ParameterShard(layout, ps, values, optimizer.slots(size))


def some_gradient(layout: Layout, ps: int, seed: int) -> Gradient:
    rng = np.random.default_rng(seed)
    rows = {}
    for index, piece in enumerate(layout.pieces[ps]):
        if layout.variables[piece.variable].kind is GradientKind.ROWWISE:
            ids = rng.permutation(piece.end - piece.start)[:5].astype(np.int64)
            rows[index] = (ids, rng.standard_normal((ids.size, 3)).astype(F))
    return Gradient(rng.standard_normal(layout.dense_size(ps)).astype(F), rows)


def test_frozen_variables_never_move() -> None:
    layout = place(VARIABLES, 1)
    optimizer = make("AdamW", weight_decay=0.5)
    shard = new_shard(optimizer, layout, 0)
    before = shard.values.copy()
    apply_gradient(
        optimizer, shard, some_gradient(layout, 0, 1), step=0, learning_rate=0.1
    )
    moved = shard.values != before
    assert not moved[-6:].any()
    assert moved[:-6].all()


def test_what_the_loss_does_not_reach_has_empty_slots_and_itself_as_average() -> None:
    layout = place(VARIABLES, 1)
    optimizer = make("AdamW", weight_decay=0.5, use_ema=True)
    size = layout.size(0)
    values = np.random.default_rng(0).standard_normal(size).astype(F)
    shard = ParameterShard(layout, 0, values, optimizer.slots(size, values.copy()))
    for step in range(3):
        gradient = some_gradient(layout, 0, step)
        apply_gradient(optimizer, shard, gradient, step=step, learning_rate=0.1)
    slots = {name: slot[-6:] for name, slot in shard.slots.items()}
    np.testing.assert_allclose(slots.pop(AVERAGE), shard.values[-6:], rtol=1e-6)
    assert len(slots) == 2
    assert not any(slot.any() for slot in slots.values())


def test_a_row_wise_piece_without_rows_still_moves_where_keras_moves_it() -> None:
    layout = place(VARIABLES, 1)
    optimizer = make("Adam")
    shard = new_shard(optimizer, layout, 0)
    first = some_gradient(layout, 0, 1)
    apply_gradient(optimizer, shard, first, step=0, learning_rate=0.1)
    before = shard.values.copy()
    none = Gradient(np.empty(0, F), {})
    apply_gradient(optimizer, shard, none, step=1, learning_rate=0.1)
    moved = shard.values != before
    assert not moved[: layout.dense_size(0)].any()
    assert moved.sum() == 5 * 3


def test_threads_change_nothing_in_the_result() -> None:
    layout = place([Variable("w", (1000, 300)), Variable("b", (300,))], 1)
    changed = tree("AdamW", weight_decay=0.1)
    changed["exclude_from_weight_decay"] = ["b"]
    optimizer = optimizer_from_json(json.dumps(changed))
    one, many = (new_shard(optimizer, layout, 0) for _ in range(2))
    gradient = Gradient(new_shard(optimizer, layout, 0).values, {})
    apply_gradient(optimizer, one, gradient, step=0, learning_rate=0.1)
    with ThreadPoolExecutor(3) as threads:
        apply_gradient(
            optimizer, many, gradient, step=0, learning_rate=0.1, threads=threads,
            parts=3,
        )  # fmt: skip
    np.testing.assert_array_equal(one.values, many.values)


def test_spans_join_what_is_updated_alike_and_keep_variables_for_clipnorm() -> None:
    layout = place(VARIABLES, 1)
    assert dense_spans(make("Adam"), layout, 0) == (Span(0, 136, False),)
    changed = tree("AdamW", weight_decay=0.1)
    changed["exclude_from_weight_decay"] = ["a/bias"]
    spans = dense_spans(optimizer_from_json(json.dumps(changed)), layout, 0)
    assert [(s.start, s.stop, s.decay) for s in spans] == [
        (0, 120, True), (120, 124, False), (124, 136, True)
    ]  # fmt: skip
    spans = dense_spans(make("SGD", clipnorm=1.0), layout, 0)
    assert [(s.start, s.stop) for s in spans] == [(0, 120), (120, 124), (124, 136)]
    whole = Span(0, 1 << 20, decay=True, clip=True)
    assert list(split(whole, 4)) == [whole]
    halves = split(Span(0, 1 << 20, decay=True), 2)
    assert [s.stop for s in halves] == [1 << 19, 1 << 20]
    assert len(list(split(Span(0, 100, decay=True), 4))) == 1


def test_the_mean_of_gradients_counts_absent_rows_as_zero() -> None:
    ids = np.array([4, 1], np.int64)
    first = Gradient(np.array([1, 2], F), {0: (ids, np.ones((2, 1), F))})
    second = Gradient(np.array([3, 6], F), {0: (ids[:1], np.ones((1, 1), F))})
    third = Gradient(np.empty(0, F), {})
    mean = mean_gradient([first, second, third, third])
    np.testing.assert_array_equal(mean.dense, [1, 2])
    np.testing.assert_array_equal(mean.rows[0][0], ids)
    np.testing.assert_array_equal(mean.rows[0][1], [[0.5], [0.25]])


def test_the_mean_is_that_of_the_whole_batch_when_one_is_short() -> None:
    ids = np.array([2], np.int64)
    long = Gradient(np.array([1, 2], F), {0: (ids, np.full((1, 1), 3, F))})
    short = Gradient(np.array([5, 6], F), {0: (ids, np.full((1, 1), 7, F))})
    mean = mean_gradient([long, short], [24, 8])
    np.testing.assert_allclose(mean.dense, [2, 3])
    np.testing.assert_allclose(mean.rows[0][1], [[4]])


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (Gradient(np.zeros(3, F), {}), r"shape \(3,\) and float32, expected \(136,\)"),
        (Gradient(np.zeros(136), {}), "and float64, expected"),
        (Gradient(np.zeros(136, F), {0: (np.zeros(1, np.int64), np.zeros((1, 4), F))}),
         r"pieces \[0\], which are not row-wise"),
        (Gradient(np.zeros(136, F), {3: (np.array([50]), np.zeros((1, 3), F))}),
         "got row numbers of int64 from 50 to 50, expected int64 from 0 to 49"),
        (Gradient(np.zeros(136, F), {3: (np.array([-1]), np.zeros((1, 3), F))}),
         "got row numbers of int64 from -1"),
        (Gradient(np.zeros(136, F), {3: (np.array([1]), np.zeros((2, 3), F))}),
         r"got rows of shape \(2, 3\)"),
    ],
)  # fmt: skip
def test_a_gradient_that_does_not_fit_is_refused_and_changes_nothing(
    gradient: Gradient, message: str
) -> None:
    layout = place(VARIABLES, 1)
    optimizer = make("Adam")
    shard = new_shard(optimizer, layout, 0)
    before = shard.values.copy()
    with pytest.raises(ValueError, match=message):
        apply_gradient(optimizer, shard, gradient, step=0, learning_rate=0.1)
    np.testing.assert_array_equal(shard.values, before)
    assert not shard.slots["m"].any()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("num_ps", [1, 3])
def test_d8_slots_survive_another_number_of_ps(
    name: str, num_ps: int, tmp_path: Path
) -> None:
    optimizer = case(name)
    before, after = place(VARIABLES, 2), place(VARIABLES, num_ps)
    whole = [
        np.random.default_rng(n).standard_normal((v.num_rows, v.row_size))
        for n, v in enumerate(VARIABLES)
    ]
    undisturbed = [np.zeros(array.shape, F) for array in whole]

    def gradient_of(layout: Layout, ps: int, step: int) -> Gradient:
        # The same for each row of each variable, whoever holds it.
        dense, rows = [np.empty(0, F)], {}
        for index, piece in enumerate(layout.pieces[ps]):
            variable = layout.variables[piece.variable]
            part = np.sin(whole[piece.variable][piece.start : piece.end] + step)
            if variable.kind is GradientKind.DENSE:
                dense.append(part.astype(F).reshape(-1))
            elif variable.kind is GradientKind.ROWWISE:
                ids = np.flatnonzero((np.arange(piece.start, piece.end) + step) % 3)
                rows[index] = (ids, part[ids].astype(F))
        return Gradient(np.concatenate(dense), rows)

    def parts_of(shard: ParameterShard) -> Iterator[tuple[Piece, np.ndarray]]:
        for piece in shard.layout.pieces[shard.ps]:
            part = shard.values[piece.offset : piece.offset + piece.size]
            yield piece, part.reshape(piece.end - piece.start, -1)

    def train(shard: ParameterShard, steps: range) -> None:
        for step in steps:
            gradient = gradient_of(shard.layout, shard.ps, step)
            apply_gradient(optimizer, shard, gradient, step=step, learning_rate=0.1)

    entries = []
    for ps, pieces in enumerate(before.pieces):
        start = [whole[p.variable][p.start : p.end].reshape(-1) for p in pieces]
        values = np.concatenate(start).astype(F)
        slots = optimizer.slots(values.size, values)
        shard = ParameterShard(before, ps, values, slots)
        train(shard, range(3))
        tensors = reshard.shard_tensors(
            before, ps, shard.values, shard.slots, scalars={}, states={}
        )
        meta = reshard.shard_meta(before, version=3, optimizer=optimizer.text)
        entries.append(store.write_shard(tmp_path, ps, 2, tensors, meta))
        train(shard, range(3, 6))
        for piece, rows in parts_of(shard):
            undisturbed[piece.variable][piece.start : piece.end] = rows
    store.write_manifest(
        tmp_path, Manifest(job="j", strategy="s", version=3, shards=entries)
    )
    for ps in range(num_ps):
        loaded = reshard.load_pieces(reshard.CheckpointReader(tmp_path), after, ps)
        slots = optimizer.restore_slots(after.size(ps), loaded.slots)
        shard = ParameterShard(after, ps, loaded.values, slots)
        train(shard, range(3, 6))
        for piece, rows in parts_of(shard):
            expected = undisturbed[piece.variable][piece.start : piece.end]
            np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("name", CASES)
def test_d8_slots_survive_a_checkpoint_and_training_goes_on_bit_for_bit(
    name: str, tmp_path: Path
) -> None:
    optimizer = case(name)
    layout = place(VARIABLES, 2)
    shards = [new_shard(optimizer, layout, ps) for ps in range(2)]

    def train(shard: ParameterShard, first: int, last: int) -> None:
        for step in range(first, last):
            gradient = some_gradient(layout, shard.ps, 10 * step + shard.ps)
            apply_gradient(optimizer, shard, gradient, step=step, learning_rate=0.1)

    entries = []
    for shard in shards:
        train(shard, 0, 3)
        tensors = reshard.shard_tensors(
            layout, shard.ps, shard.values, shard.slots, scalars={}, states={}
        )
        meta = reshard.shard_meta(layout, version=3, optimizer=optimizer.text)
        entries.append(store.write_shard(tmp_path, shard.ps, 2, tensors, meta))
    store.write_manifest(
        tmp_path, Manifest(job="j", strategy="s", version=3, shards=entries)
    )
    for shard in shards:
        train(shard, 3, 6)
        loaded = reshard.load_pieces(
            reshard.CheckpointReader(tmp_path), layout, shard.ps
        )
        assert loaded.version == 3
        again = optimizer_from_json(loaded.optimizer)
        size = layout.size(shard.ps)
        slots = again.restore_slots(size, loaded.slots)
        resumed = ParameterShard(layout, shard.ps, loaded.values, slots)
        train(resumed, loaded.version, 6)
        np.testing.assert_array_equal(resumed.values, shard.values)
