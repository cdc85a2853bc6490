import pytest
from elasticdl.data.custom import CustomReader
from elasticdl.data.records import Metadata, Shard
from elasticdl.errors import BadRecordError, DataError, UserCodeError


class Classic:
    """A reader as users wrote them for the earlier system."""

    def __init__(self, shards=None):
        self._shards = {"table": (0, 10)} if shards is None else shards
        self.tasks = []

    def create_shards(self):
        return self._shards

    def read_records(self, task):
        self.tasks.append(task)
        for i in range(task.start, task.end):
            yield b"%s %d" % (task.shard_name.encode(), i)


def test_the_records_of_a_classic_reader_are_read():
    classic = Classic()
    reader = CustomReader(classic)
    assert reader.shards() == [Shard("table", 0, 10)]
    found = reader.read("table", 3, 5, skip_bad=False)
    assert found.values == [b"table 3", b"table 4"]
    shard = classic.tasks[0].shard
    assert (shard.name, shard.start, shard.end) == ("table", 3, 5)


@pytest.mark.parametrize(
    "shards",
    [{"a": (5, 10), "b": [0, 2], "none": (0, 0)}, [("a", 5, 10), ("b", 0, 2)]],
)
def test_shards_come_as_a_mapping_or_as_triples(shards):
    assert CustomReader(Classic(shards)).shards() == [
        Shard("a", 5, 15),
        Shard("b", 0, 2),
    ]


@pytest.mark.parametrize("shards", [{}, [("a", 0, 0)]])
def test_no_shards_are_a_data_error(shards):
    with pytest.raises(DataError, match="gave no shards"):
        CustomReader(Classic(shards)).shards()


@pytest.mark.parametrize("shards", [5, [("a", 1)], {"a": "xy"}])
def test_shards_in_another_form_are_told(shards):
    with pytest.raises(UserCodeError, match=r"expected \{name"):
        CustomReader(Classic(shards)).shards()


def test_an_object_without_the_methods_is_refused():
    with pytest.raises(UserCodeError, match="no method create_shards"):
        CustomReader(object())


def test_what_the_users_code_raises_is_told_as_such():
    class Failing(Classic):
        def read_records(self, task):
            raise KeyError("column x")

    with pytest.raises(UserCodeError, match="Failing raised KeyError: 'column x'"):
        CustomReader(Failing()).read("table", 0, 1, skip_bad=True)


def test_our_own_errors_pass_through():
    class Strict(Classic):
        def read_records(self, task):
            raise BadRecordError("table", 3, "odd")

    with pytest.raises(BadRecordError, match="record 3: odd"):
        CustomReader(Strict()).read("table", 0, 5, skip_bad=False)


def test_missing_records_are_bad_and_more_are_an_error():
    class Short(Classic):
        def read_records(self, task):
            return [b"x"]

    reader = CustomReader(Short())
    assert [bad.record for bad in reader.read("table", 4, 7, skip_bad=True).bad] == [
        5,
        6,
    ]
    with pytest.raises(BadRecordError):
        reader.read("table", 4, 7, skip_bad=False)
    with pytest.raises(UserCodeError, match="expected 0"):
        reader.read("table", 4, 4, skip_bad=False)


def test_metadata_is_taken_in_every_form():
    class Named:
        column_names = ("a", "b")
        column_dtypes = ("float32", "int64")

    classic = Classic()
    assert CustomReader(classic).metadata == Metadata()
    classic.metadata = Named()
    assert CustomReader(classic).metadata == Metadata(("a", "b"), ("float32", "int64"))
    Named.column_dtypes = {"b": "int64", "a": "float32"}
    assert CustomReader(classic).metadata == Metadata(("a", "b"), ("float32", "int64"))
    classic.metadata = {"rows": 3}
    assert CustomReader(classic).metadata == Metadata(extra={"rows": 3})
    classic.metadata = Metadata(("x",))
    assert CustomReader(classic).metadata == Metadata(("x",))


def test_output_types_are_handed_on():
    classic = Classic()
    assert CustomReader(classic).records_output_types is None
    classic.records_output_types = "string"
    assert CustomReader(classic).records_output_types == "string"
