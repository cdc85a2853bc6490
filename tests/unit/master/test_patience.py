"""Storage that is away when a master begins."""

import errno

import pytest
from elasticdl.errors import CheckpointError, JournalError
from elasticdl.master.patience import patiently


class Storage:
    """Fails so many times."""

    def __init__(self, number: int, times: int) -> None:
        self.number, self.times, self.tries, self.now = number, times, 0, 0.0

    def act(self) -> str:
        self.tries += 1
        if self.tries > self.times:
            return "done"
        try:
            raise OSError(self.number, "storage")
        except OSError as error:
            raise JournalError("the journal cannot be written") from error

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def patiently(self, seconds: float) -> str:
        return patiently(
            self.act, seconds=seconds, clock=lambda: self.now, sleep=self.sleep
        )


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ESTALE, errno.ENOSPC, errno.ENOLCK]
)
def test_storage_that_comes_back_in_time_is_waited_for(number: int) -> None:
    assert Storage(number, 100).patiently(60.0) == "done"


def test_storage_that_stays_away_fails_after_the_time() -> None:
    storage = Storage(errno.EIO, 10**6)
    with pytest.raises(JournalError):
        storage.patiently(60.0)
    assert storage.now == 60.0


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.ELOOP]
)
def test_what_waiting_does_not_mend_fails_at_once(number: int) -> None:
    storage = Storage(number, 10**6)
    with pytest.raises(JournalError):
        storage.patiently(60.0)
    assert storage.tries == 1


def test_a_damaged_journal_is_not_waited_for() -> None:
    def damaged() -> None:
        raise JournalError("line 3 is damaged")

    with pytest.raises(JournalError, match="line 3"):
        patiently(damaged, seconds=60.0, sleep=lambda _: pytest.fail("it waited"))


def test_a_checkpoint_folder_that_is_away_when_a_master_begins_is_waited_for() -> None:
    tries = iter([errno.ESTALE, errno.EIO])

    def find() -> str:
        for number in tries:
            raise CheckpointError("checkpoints cannot be read") from OSError(number, "")
        return "version-200"

    assert patiently(find, seconds=60.0, sleep=lambda _: None) == "version-200"
