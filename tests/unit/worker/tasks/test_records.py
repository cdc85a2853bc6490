"""Which numbers the records of a task have in their file."""

from elasticdl.job.tasks import SkippedRecord, Task
from elasticdl.worker.tasks.records import LoadedTask

TASK = Task(source="a", start=10, end=16)


def bad(*numbers):
    return tuple(SkippedRecord("a", number, "torn") for number in numbers)


def test_records_have_their_numbers_though_others_of_the_task_are_bad():
    assert list(LoadedTask(TASK, [b""] * 6).numbers) == [10, 11, 12, 13, 14, 15]
    task = LoadedTask(TASK, [b""] * 4, bad(11, 14))
    assert task.numbers == [10, 12, 13, 15]
    assert task.bad_record(2, "no Example").record == 13


def test_numbers_that_nobody_knows_are_none():
    assert LoadedTask(TASK, [b""] * 5, bad(-1)).numbers is None
    assert LoadedTask(TASK, [b""] * 7, unplanned=1).numbers is None
    assert LoadedTask(TASK, [b""] * 5, bad(-1)).bad_record(2, "torn").record == -1
