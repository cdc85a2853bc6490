"""Whom each bell of the master wakes."""

import asyncio

from elasticdl.master.signals import Broadcast, Signals


def woken(ring, *, workers_hold: bool = False) -> set[str]:
    """Return who of a worker and a PS has an answer after a bell."""

    async def story() -> set[str]:
        signals = Signals(1, workers_hold=workers_hold)
        held = {
            "worker": asyncio.ensure_future(signals.wait_for_revision(60.0)),
            "ps": asyncio.ensure_future(signals.wait_for_ps_revision(60.0)),
        }
        await asyncio.sleep(0)
        ring(signals)
        done, waiting = await asyncio.wait(
            held.values(), return_when=asyncio.FIRST_COMPLETED
        )
        for future in waiting:
            future.cancel()
        return {name for name, future in held.items() if future in done}

    return asyncio.run(story())


def test_what_all_have_to_know_wakes_all() -> None:
    assert woken(lambda signals: signals.bump()) == {"worker", "ps"}


def test_what_the_ps_are_asked_for_lets_a_thousand_workers_sleep() -> None:
    assert woken(lambda signals: signals.bump_ps()) == {"ps"}
    assert woken(lambda signals: signals.bump_holders()) == {"ps"}


def test_the_worker_that_holds_the_parameters_is_asked_for_them() -> None:
    both = woken(lambda signals: signals.bump_holders(), workers_hold=True)
    assert both == {"worker", "ps"}


def test_a_revision_told_to_ps_is_never_older_than_before() -> None:
    signals = Signals(2)
    before = signals.revision, signals.ps_revision
    signals.bump_ps()
    assert signals.revision == before[0]
    assert signals.ps_revision > before[1]
    signals.bump()
    assert signals.revision > before[0]


def test_who_has_waited_longest_is_woken_first() -> None:
    woken: list[int] = []

    async def wait(bell: Broadcast, number: int) -> None:
        await bell.wait(60.0)
        woken.append(number)

    async def story() -> None:
        bell = Broadcast()
        tasks = []
        for number in range(200):
            tasks.append(asyncio.ensure_future(wait(bell, number)))
            await asyncio.sleep(0)
        bell.notify()
        await asyncio.gather(*tasks)

    asyncio.run(story())
    assert woken == list(range(200))
