"""Members' digests are compared once for each time that the leader asks."""

from __future__ import annotations

import pytest
from elasticdl.worker.group.digests import Digests
from elasticdl.worker.group.word import HeaderWord


def words(step: int, **digests: int) -> dict[int, bytes]:
    """Return what members 5 and 8 say."""
    return {
        member: HeaderWord(2.5, step, digest).encoded()
        for member, digest in zip((5, 8), digests.values(), strict=True)
    }


def test_the_first_plan_of_a_round_asks_and_one_after_something_was_made() -> None:
    digests = Digests(lambda: 7)
    assert digests.asks(4, 2)
    assert not digests.asks(4, 2)
    digests.due()
    assert digests.asks(4, 2)
    assert not digests.asks(4, 2)
    assert digests.asks(6, 3)


def test_one_that_is_alone_is_not_asked() -> None:
    digests = Digests(lambda: 7)
    assert not digests.asks(4, 1)
    digests.due()
    assert not digests.asks(4, 1)
    assert digests.asks(5, 2)


def test_who_differs_is_said_once_when_all_have_answered() -> None:
    digests = Digests(lambda: 7)
    digests.take(12)
    assert digests.answer == (12, 7)
    assert digests.differing(words(11, a=1, b=1)) == ()  # what was asked before
    half = {**words(12, a=9, b=7), 8: HeaderWord(2.5, 11, 3).encoded()}
    assert digests.differing(half) == ()
    assert digests.differing(words(12, a=9, b=7)) == (5,)
    assert digests.differing(words(12, a=9, b=7)) == ()


def test_who_is_equal_is_not_named() -> None:
    digests = Digests(lambda: 7)
    digests.take(12)
    assert digests.differing(words(12, a=7, b=7)) == ()


@pytest.mark.parametrize("raw", [b"", b"x", bytes(21)])
def test_a_word_of_another_size_says_nothing(raw: bytes) -> None:
    assert HeaderWord.decoded(raw) == HeaderWord()


def test_a_word_is_read_as_it_was_written() -> None:
    word = HeaderWord(0.25, 1 << 40, 0xFFFFFFFF)
    assert HeaderWord.decoded(word.encoded()) == word
