"""Claims about loading a checkpoint on another number of PS."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import reshard, store
from elasticdl.checkpoint.layout import Manifest, tensor_name, version_dir
from elasticdl.errors import CheckpointError
from elasticdl.ps.carry_over import carry_over
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.tensor.placement import GradientKind, Layout, Variable, place
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ps.optimizers.cases import tree

VARIABLES = (
    Variable("dense/kernel", (12, 5)),
    Variable("dense/bias", (5,)),
    Variable("table", (33, 4), GradientKind.ROWWISE),
    Variable("scale", ()),
    Variable("odd|name", (3, 2, 2), GradientKind.FROZEN),
)

ADAM = json.dumps(tree("Adam", learning_rate=0.1))


def full(variables: Sequence[Variable], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in variables}


def flat(layout: Layout, ps: int, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Cut whole arrays into the buffer of one PS."""
    buffer = np.full(layout.size(ps), np.nan, np.float32)
    for piece in layout.pieces[ps]:
        variable = layout.variables[piece.variable]
        rows = arrays[variable.name].reshape(variable.num_rows, -1)
        part = rows[piece.start : piece.end].reshape(-1)
        buffer[piece.offset : piece.offset + piece.size] = part
    return buffer


def write(
    directory: Path,
    layout: Layout,
    *,
    values: Mapping[str, np.ndarray],
    slots: Mapping[str, Mapping[str, np.ndarray]],
    versions: Sequence[int],
) -> Path:
    target = directory / version_dir(versions[0])
    entries = [
        store.write_shard(
            target,
            ps,
            layout.num_ps,
            reshard.shard_tensors(
                layout,
                ps,
                flat(layout, ps, values),
                {name: flat(layout, ps, slot) for name, slot in slots.items()},
                scalars={"decayed": 0.5},
                states={"moving_mean": np.arange(3.0)} if ps == 0 else {},
            ),
            reshard.shard_meta(layout, version=versions[ps], optimizer="{}"),
        )
        for ps in range(layout.num_ps)
    ]
    store.write_manifest(
        target, Manifest(job="j", strategy="s", version=versions[0], shards=entries)
    )
    return target


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 3))
def test_any_number_of_shards_loads_on_any_number_of_ps_with_every_row_once(
    before: int, after: int, seed: int
) -> None:
    values, m, v = (full(VARIABLES, seed + number) for number in range(3))
    old, new = place(VARIABLES, before), place(VARIABLES, after)
    with tempfile.TemporaryDirectory() as directory:
        target = write(
            Path(directory),
            old,
            values=values,
            slots={"m": m, "v": v},
            versions=[40 + ps for ps in range(before)],
        )
        for ps in range(after):
            loaded = reshard.load_pieces(reshard.CheckpointReader(target), new, ps)
            np.testing.assert_array_equal(loaded.values, flat(new, ps, values))
            np.testing.assert_array_equal(loaded.slots["m"], flat(new, ps, m))
            np.testing.assert_array_equal(loaded.slots["v"], flat(new, ps, v))
            assert loaded.scalars == {"decayed": 0.5}
            assert set(loaded.states) == ({"moving_mean"} if ps == 0 else set())
            assert loaded.version == (40 + ps if before == after else 40)
            loaded.values[:] = 0  # writable: the PS trains on in it
        whole = reshard.load_all(target)
        assert whole.version == 40
        assert set(whole.values) == set(values)
        for name, array in values.items():
            np.testing.assert_array_equal(whole.values[name], array)
            np.testing.assert_array_equal(whole.slots["v"][name], v[name])
        np.testing.assert_array_equal(whole.states["moving_mean"], np.arange(3.0))


def one_checkpoint(directory: Path, num_ps: int = 2) -> Path:
    values = full(VARIABLES, 0)
    layout = place(VARIABLES, num_ps)
    return write(
        directory, layout, values=values, slots={"m": values}, versions=[7] * num_ps
    )


def test_d8_a_restored_ps_knows_its_version_and_has_all_its_slots(
    tmp_path: Path,
) -> None:
    target = one_checkpoint(tmp_path)
    for num_ps in (1, 2, 3):
        layout = place(VARIABLES, num_ps)
        for ps in range(num_ps):
            loaded = reshard.load_pieces(reshard.CheckpointReader(target), layout, ps)
            assert loaded.version == 7
            assert loaded.slots["m"].size == layout.size(ps)
            assert loaded.optimizer == "{}"


def test_missing_and_misshapen_variables_are_all_named(tmp_path: Path) -> None:
    target = one_checkpoint(tmp_path)
    other = place(
        [
            Variable("dense/kernel", (12, 6)),
            Variable("dense/bias", (5,)),
            Variable("table", (40, 4), GradientKind.ROWWISE),
            Variable("new/kernel", (2, 2)),
            Variable("scale", (1,)),
        ],
        1,
    )
    with pytest.raises(CheckpointError) as caught:
        reshard.load_pieces(reshard.CheckpointReader(target), other, 0)
    message = str(caught.value)
    assert "dense/kernel: got (12, 5), expected (12, 6)" in message
    assert "table: got (33, 4), expected (40, 4)" in message
    assert "new/kernel: got none, expected (2, 2)" in message
    assert "scale: got (), expected (1,)" in message
    assert "dense/bias: got" not in message


@pytest.mark.parametrize("num_ps", [1, 2, 3])
def test_slots_that_one_variable_lacks_begin_anew_there_alone(
    tmp_path: Path, num_ps: int
) -> None:
    """A table that was frozen takes no slots of the others away, on any PS."""
    values = full(VARIABLES, 0)
    before = place([v for v in VARIABLES if v.name != "table"], 1)
    slots = {"m": full(before.variables, 1), "v": full(before.variables, 2)}
    tensors = reshard.shard_tensors(
        before,
        0,
        flat(before, 0, values),
        {name: flat(before, 0, slot) for name, slot in slots.items()},
        scalars={},
        states={"table": values["table"]},
    )
    meta = reshard.shard_meta(before, version=1, optimizer=ADAM)
    entry = store.write_shard(tmp_path, 0, 1, tensors, meta)
    store.write_manifest(
        tmp_path, Manifest(job="j", strategy="s", version=1, shards=[entry])
    )
    layout = place(VARIABLES, num_ps)
    new = np.zeros((33, 4), np.float32)
    for ps in range(num_ps):
        loaded = reshard.load_pieces(reshard.CheckpointReader(tmp_path), layout, ps)
        np.testing.assert_array_equal(loaded.values, flat(layout, ps, values))
        carried = carry_over(
            optimizer_from_json(ADAM),
            loaded.values,
            loaded.slots,
            lacking=loaded.lacking,
            written_by=loaded.optimizer,
        )
        for name, slot in slots.items():
            expected = flat(layout, ps, {**slot, "table": new})
            np.testing.assert_array_equal(carried.slots[name], expected)
        if any(layout.variables[p.variable].name == "table" for p in layout.pieces[ps]):
            assert "no m of table, v of table that fits" in carried.warning("Adam")


def test_slots_that_a_variable_does_not_have_are_left_out(tmp_path: Path) -> None:
    values = full(VARIABLES, 0)
    layout = place(VARIABLES, 1)
    tensors = reshard.shard_tensors(
        layout, 0, flat(layout, 0, values), {}, scalars={}, states={}
    )
    tensors[tensor_name("slot:m", "scale", 0, 1)] = np.float32(3).reshape(())
    meta = reshard.shard_meta(layout, version=1, optimizer="")
    entry = store.write_shard(tmp_path, 0, 1, tensors, meta)
    store.write_manifest(
        tmp_path, Manifest(job="j", strategy="s", version=1, shards=[entry])
    )
    loaded = reshard.load_pieces(reshard.CheckpointReader(tmp_path), layout, 0)
    lacking = [one.variable for one in loaded.lacking["m"]]
    assert sorted(lacking) == sorted({v.name for v in VARIABLES} - {"scale"})
    assert reshard.load_all(tmp_path).slots["m"]["scale"] == 3


def write_raw(directory: Path, shards: Sequence[Mapping[str, np.ndarray]]) -> None:
    entries = [
        store.write_shard(directory, index, len(shards), tensors, {"version": 1})
        for index, tensors in enumerate(shards)
    ]
    store.write_manifest(
        directory, Manifest(job="j", strategy="s", version=1, shards=entries)
    )


def rows(start: int, end: int) -> dict[str, np.ndarray]:
    name = tensor_name("value", "w", start, end)
    return {name: np.ones((end - start, 2), np.float32)}


@pytest.mark.parametrize(
    "shards",
    [
        [rows(0, 5), rows(6, 10)],
        [rows(0, 5), rows(3, 10)],
        [rows(5, 10), rows(5, 10)],  # as many as there have to be
        [rows(0, 10), rows(0, 10)],
    ],
)
def test_rows_that_are_absent_or_there_twice_are_refused(
    tmp_path: Path, shards: Sequence[Mapping[str, np.ndarray]]
) -> None:
    write_raw(tmp_path, shards)
    with pytest.raises(CheckpointError, match="expected each of the rows 0 to 10 once"):
        reshard.load_pieces(
            reshard.CheckpointReader(tmp_path), place([Variable("w", (10, 2))], 1), 0
        )
    with pytest.raises(CheckpointError, match="expected each of the rows 0 to 10 once"):
        reshard.load_all(tmp_path)


def test_a_tensor_of_an_unknown_name_is_refused(tmp_path: Path) -> None:
    write_raw(tmp_path, [{"w": np.ones(1, np.float32)}])
    with pytest.raises(CheckpointError, match="another version of ElasticDL"):
        reshard.load_all(tmp_path)


def test_a_layout_whose_shard_has_nothing_of_it_is_refused(tmp_path: Path) -> None:
    layout = place([Variable("w", (5, 2))], 1)
    meta = reshard.shard_meta(layout, version=1, optimizer="")
    entry = store.write_shard(tmp_path, 0, 1, {}, meta)
    store.write_manifest(
        tmp_path, Manifest(job="j", strategy="s", version=1, shards=[entry])
    )
    with pytest.raises(CheckpointError, match="has no values for PS 0"):
        reshard.load_pieces(reshard.CheckpointReader(tmp_path), layout, 0)
