"""Looking again and again beside a view."""

from __future__ import annotations

import queue

import pytest
from elasticdl.errors import NotFoundError, PlatformError
from elasticdl.views.terminal.looking import Looking

BOUND_SECONDS = 10.0


class Steps:
    """Answers one after the other, each when the test asks for it."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self._asked: queue.Queue[None] = queue.Queue()
        self._go: queue.Queue[None] = queue.Queue()

    def look(self) -> str:
        self._asked.put(None)
        self._go.get(timeout=BOUND_SECONDS)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def step(self) -> None:
        """Let it answer; who asks again has taken that in."""
        self._go.put(None)
        self._asked.get(timeout=BOUND_SECONDS)


def test_what_goes_wrong_for_a_while_is_told_beside_what_was_seen_last() -> None:
    steps = Steps("second", PlatformError("the cluster does not answer"), "third", "")
    with Looking(steps.look, "first", every=0.001) as looking:
        steps._asked.get(timeout=BOUND_SECONDS)
        assert (looking.newest, looking.trouble) == ("first", "")
        steps.step()
        assert (looking.newest, looking.trouble) == ("second", "")
        steps.step()
        assert looking.newest == "second"
        assert looking.trouble == "the cluster does not answer"
        steps.step()
        assert (looking.newest, looking.trouble) == ("third", "")
    steps._go.put(None)


@pytest.mark.parametrize(
    "error", [NotFoundError("no job 'digits'"), ZeroDivisionError("a bug")]
)
def test_what_will_not_change_ends_it(error: Exception) -> None:
    def look() -> str:
        raise error

    with Looking(look, "first", every=0.001) as looking:
        looking._thread.join(BOUND_SECONDS)
        with pytest.raises(type(error), match=str(error)):
            _ = looking.newest
