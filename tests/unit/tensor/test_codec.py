"""Frames: what goes in comes out, aligned, uncopied, and damage is noticed."""

import numpy as np
import pytest
from elasticdl.tensor.codec import ALIGNMENT, FrameError, chunks, decode, encode, join
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

_arrays = hnp.arrays(
    dtype=st.sampled_from(["float32", "float16", "int64", "uint8", "bool"]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)


@given(st.binary(max_size=200), st.dictionaries(st.text(max_size=9), _arrays))
def test_round_trip(meta, tensors):
    frame = decode(join(encode(meta, tensors)))
    assert frame.meta == meta
    assert list(frame.tensors) == list(tensors)
    for name, array in tensors.items():
        assert frame.tensors[name].dtype == array.dtype
        assert frame.tensors[name].shape == array.shape
        np.testing.assert_array_equal(frame.tensors[name], array)


@given(st.integers(1, 300))
def test_chunks_are_the_same_bytes(chunk_bytes):
    buffers = encode(b"meta", {"a": np.arange(99, dtype="f4"), "b": np.ones(3)})
    parts = list(chunks(buffers, chunk_bytes))
    assert b"".join(parts) == join(buffers)
    assert all(len(p) == chunk_bytes for p in parts[:-1])


def test_payloads_are_aligned_and_not_copied():
    array = np.arange(1000, dtype="f4")
    buffers = encode(b"x" * 7, {"a": np.ones(3, "u1"), "b": array})
    assert any(
        isinstance(b, memoryview)
        and np.shares_memory(np.frombuffer(b, np.uint8), array)
        for b in buffers
    )
    data = join(buffers)
    base = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    for tensor in decode(data).tensors.values():
        assert (tensor.__array_interface__["data"][0] - base) % ALIGNMENT == 0


@pytest.mark.parametrize("cut", [10, 70, 200])
def test_cut_frame_is_an_error(cut):
    data = join(encode(b"meta", {"a": np.arange(99, dtype="f4")}))
    with pytest.raises(FrameError):
        decode(data[:cut])


def test_other_bytes_and_dtypes_are_refused():
    with pytest.raises(FrameError, match="another version"):
        decode(b"x" * 100)
    with pytest.raises(FrameError, match="complex128"):
        encode(b"", {"a": np.ones(2, complex)})
