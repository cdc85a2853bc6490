import contextlib

import numpy as np
import pytest
from elasticdl.data.formats.example import decode_example, encode_example
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

LABEL = descriptor_pb2.FieldDescriptorProto


def example_class():
    """tf.train.Example by protobuf itself, from a description of it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="t", syntax="proto3"
    )

    def message(name, *fields):
        added = file.message_type.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, start=1):
            added.field.add(
                name=field,
                number=number,
                type=LABEL.TYPE_MESSAGE if isinstance(kind, str) else kind,
                type_name=f".t.{kind}" if isinstance(kind, str) else None,
                label=LABEL.LABEL_REPEATED if repeated else LABEL.LABEL_OPTIONAL,
            )
        return added

    message("BytesList", ("value", LABEL.TYPE_BYTES, True))
    message("FloatList", ("value", LABEL.TYPE_FLOAT, True))
    message("Int64List", ("value", LABEL.TYPE_INT64, True))
    message(
        "Feature",
        ("bytes_list", "BytesList", False),
        ("float_list", "FloatList", False),
        ("int64_list", "Int64List", False),
    )
    features = message("Features", ("feature", "Features.FeatureEntry", True))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=LABEL.TYPE_STRING, label=1)
    entry.field.add(
        name="value", number=2, type=LABEL.TYPE_MESSAGE, type_name=".t.Feature", label=1
    )
    message("Example", ("features", "Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


Example = example_class()

values = st.one_of(
    npst.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)),
    npst.arrays(np.int64, st.integers(0, 20)),
    st.lists(st.binary(max_size=200), max_size=4),
)
features = st.dictionaries(st.text(max_size=8), values, max_size=4)


def same(one, other):
    if isinstance(other, list):
        return list(one) == other
    return np.array_equal(np.asarray(one, other.dtype), other, equal_nan=True) or (
        len(one) == 0 and len(other) == 0
    )


@given(features)
def test_protobuf_reads_what_is_encoded(given_features):
    parsed = Example.FromString(encode_example(given_features))
    assert set(parsed.features.feature) == set(given_features)
    for name, value in given_features.items():
        feature = parsed.features.feature[name]
        if isinstance(value, list):
            assert list(feature.bytes_list.value) == value
        elif value.dtype == np.float32:
            assert same(feature.float_list.value, value)
        else:
            assert list(feature.int64_list.value) == value.tolist()


@given(features)
def test_what_is_encoded_is_decoded(given_features):
    decoded = decode_example(encode_example(given_features))
    assert set(decoded) == set(given_features)
    assert all(same(decoded[name], value) for name, value in given_features.items())


@given(features)
def test_what_protobuf_writes_is_decoded(given_features):
    message = Example()
    for name, value in given_features.items():
        feature = message.features.feature[name]
        if isinstance(value, list):
            feature.bytes_list.value.extend(value)
        elif value.dtype == np.float32:
            feature.float_list.value.extend(value.tolist())
        else:
            feature.int64_list.value.extend(value.tolist())
    decoded = decode_example(message.SerializeToString())
    assert all(same(decoded[name], value) for name, value in given_features.items())


def test_values_of_many_kinds_are_taken():
    decoded = decode_example(
        encode_example(
            {
                "int": 3,
                "bool": True,
                "float": 0.5,
                "double": np.asarray([1.5, 2.5]),
                "bytes": b"x",
                "text": "é",
                "unicode": np.asarray(["a", "é"]),
                "raw": np.asarray([b"a", b"b"]),
                "matrix": np.arange(6, dtype=np.uint8).reshape(2, 3),
                "strided": np.arange(8.0)[::2],
            }
        )
    )
    assert decoded["int"].tolist() == [3]
    assert decoded["bool"].tolist() == [1]
    assert decoded["float"].tolist() == [0.5]
    assert decoded["double"].dtype == np.float32
    assert decoded["bytes"] == [b"x"]
    assert decoded["text"] == ["é".encode()]
    assert decoded["unicode"] == [b"a", "é".encode()]
    assert decoded["raw"] == [b"a", b"b"]
    assert decoded["matrix"].tolist() == [0, 1, 2, 3, 4, 5]
    assert decoded["strided"].tolist() == [0, 2, 4, 6]


def test_values_that_are_not_packed_are_read():
    # Old writers put each value in a field of its own.
    numbers = b"\x08\x01\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    feature = b"\x1a" + bytes([len(numbers)]) + numbers
    entry = b"\x0a\x01n\x12" + bytes([len(feature)]) + feature
    body = b"\x0a" + bytes([len(entry)]) + entry
    data = b"\x0a" + bytes([len(body)]) + body
    assert decode_example(data)["n"].tolist() == [1, -1]


@pytest.mark.parametrize("value", [1j, None, object()])
def test_other_types_are_refused(value):
    with pytest.raises((TypeError, ValueError)):
        encode_example({"x": value})


@given(st.binary(max_size=60))
def test_anything_else_raises_a_value_error_at_most(data):
    with contextlib.suppress(ValueError):
        decode_example(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05ab",
        b"\x0b",
        b"\x08\x01",
        b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x0a\x06\x0a\x04\x12\x02\x20\x01",
        b"\x0a\x0b\x0a\x09\x12\x07\x12\x05\x0a\x03abc",
        b"\x0a\x08\x0a\x06\x0a\x01\xff\x12\x01\x00",
    ],
)
def test_broken_examples_are_refused(data):
    with pytest.raises(ValueError, match="not a tf\\.train\\.Example"):
        decode_example(data)


def test_features_come_in_the_order_of_their_names():
    message = Example()
    for number in range(40):
        message.features.feature[f"f{number:02}"].int64_list.value.append(number)
    names = list(decode_example(message.SerializeToString()))
    assert names == sorted(names)
