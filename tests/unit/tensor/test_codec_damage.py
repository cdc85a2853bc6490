"""Whatever bytes come: a frame, or a FrameError."""

import struct

import numpy as np
import pytest
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.tensor import codec
from elasticdl.tensor.codec import Frame, FrameError
from hypothesis import given, settings
from hypothesis import strategies as st

WHOLE = codec.join(
    codec.encode(
        b"meta of some length",
        {
            "dense": np.arange(20, dtype=np.float32),
            "ids/0": np.arange(6, dtype=np.int64).reshape(2, 3),
            "empty": np.zeros((0, 4), np.float64),
            "scalar": np.array(True),
        },
    )
)
# Header, meta and table: where a flipped bit means something.
HEAD_BYTES = 64 + 19 + 4 * 12 + 8 * (1 + 2 + 2) + len("denseids/0emptyscalar")


def check(data: bytes) -> None:
    try:
        frame = codec.decode(data)
    except FrameError:
        return
    assert isinstance(frame, Frame)
    for tensor in frame.tensors.values():
        tensor.sum()  # reads every byte of it


@settings(max_examples=600, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, HEAD_BYTES - 1), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    )
)
def test_a_damaged_frame_is_a_frame_error_or_a_frame(changes):
    data = bytearray(WHOLE)
    for position, value in changes:
        data[position] = value
    check(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=80))
def test_a_frame_that_was_cut_is_a_frame_error(size, tail):
    with pytest.raises(FrameError):
        codec.decode(WHOLE[:size])
    check(WHOLE[:size] + tail)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_behind_a_header_are_a_frame_error_or_a_frame(data):
    check(WHOLE[:8] + data)
    check(WHOLE[:64] + data)


@pytest.mark.parametrize(
    ("at", "format_", "value"),
    [
        (8, "<Q", 1 << 60),  # length of the meta
        (16, "<Q", 1 << 60),  # number of tensors
        (24, "<Q", 1 << 60),  # length of the table
        (83, "<B", 200),  # a dtype that is not known
        (84, "<B", 255),  # a number of dimensions
        (85, "<H", 65535),  # length of a name
        (87, "<Q", 0),  # a tensor in the header
        (87, "<Q", (1 << 64) - 64),  # a tensor beyond all memory
        (95, "<Q", 1 << 62),  # so many floats that their bytes overflow
        (103, "<B", 0xFF),  # a name that is no text
    ],
)
def test_a_damaged_figure_is_named_a_frame_error(at, format_, value):
    data = bytearray(WHOLE)
    struct.pack_into(format_, data, at, value)
    with pytest.raises(FrameError):
        codec.decode(bytes(data))


def test_two_tensors_of_one_name_are_a_frame_error():
    data = codec.join(codec.encode(b"", [("a", np.ones(2)), ("a", np.zeros(2))]))
    with pytest.raises(FrameError, match="one name"):
        codec.decode(data)


@pytest.mark.parametrize("size", [1 << 60, (1 << 64) - 1])
def test_a_frame_larger_than_all_memory_is_a_frame_error(size):
    data = bytearray(WHOLE)
    struct.pack_into("<Q", data, 32, size)
    with pytest.raises(FrameError, match="memory"):
        ps_wire.assemble([bytes(data)])
