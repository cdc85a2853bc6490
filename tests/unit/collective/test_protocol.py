"""The step protocol under random losses: nothing lost, nothing twice, all equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from elasticdl.collective.messages import (
    Acknowledge,
    Action,
    Apply,
    Begin,
    Compute,
    Copy,
    Entered,
    Finished,
    Follow,
    HandOver,
    Header,
    Hello,
    Piece,
    Reduced,
    Round,
    Send,
    Snapshot,
    Stateless,
    Take,
)
from elasticdl.collective.protocol import Participant
from elasticdl.master.model.group.gathering import Gathering
from elasticdl.worker.group.plan import StepPlan

from tests.unit.collective.schedules import run
from tests.unit.collective.schedules_master import Master
from tests.unit.collective.schedules_state import totals

SCHEDULES = 200  # `make soak` runs 10,000
MOST = 300  # within which each wrong protocol is found out
HAPPENS = (
    "losses",
    "records acknowledged",
    "left in order",
    "states left to newcomers",
    "master restarts",
    "back from the dead",
    "connections lost",
    "kept out",
    "differed",
)


def failures(
    kind: type[Participant], schedules: int = MOST, *, master: type[Master] = Master
) -> Iterator[str]:
    for seed in range(schedules):
        _, wrong = run(seed, kind=kind, master=master)
        if wrong:
            yield f"seed {seed}: {wrong}"


def test_random_losses_lose_no_acknowledged_record_and_repeat_none() -> None:
    """All of what can happen does, a few times each: else this would prove nothing."""
    handed = followed = 0
    found, wrong = Counter[str](), []

    class Counting(Participant):
        def _caught_up(self, message):  # type: ignore[no-untyped-def]
            nonlocal handed
            handed += isinstance(message, HandOver)
            return super()._caught_up(message)

    for seed in range(SCHEDULES):
        world, says = run(seed, kind=Counting)
        wrong += [f"seed {seed}: {says}"] if says else []
        found.update(totals(world))
        followed += sum(p.followed for p in world.processes.values())
    assert wrong == []
    assert min(handed, followed) >= 3
    assert {what for what in HAPPENS if found[what] < 3} == set()


class ReportsAtOnce(Participant):
    """Acknowledges a step when its own exchange is over, not when all have made it."""

    def _make(self, made):  # type: ignore[no-untyped-def]
        self.made_now = Acknowledge(made.step, made.plan)
        return super()._make(made)

    def applied(self) -> list[Action]:
        made = getattr(self, "made_now", None)
        return [*([made] if made else []), *super().applied()]


class HearsOfNoEnd(Participant):
    """Waits for members that are in a newer round already."""

    def received(self, sender: int, number: int, message):  # type: ignore[no-untyped-def]
        if isinstance(message, Finished):
            return []
        return super().received(sender, number, message)


class HandsNothingOver(Participant):
    """Goes on without the step that others have made."""

    def _handed(self, member: int, target: int):  # type: ignore[no-untyped-def]
        if self._hellos[member].version is None:
            return super()._handed(member, target)
        return [Snapshot(target, self._others_state())]

    def _others_state(self):  # type: ignore[no-untyped-def]
        # What the member behind has itself: as if it only counted the step as made.
        state = self._state()
        made = self._made
        if made is not None:
            plan = StepPlan.decoded(made.plan)
            for part in state.parts:
                for record in range(plan.start, plan.end):
                    part.pop(record, None)
        return state


def test_a_member_that_reports_at_once_loses_records() -> None:
    assert any("acknowledged" in wrong for wrong in failures(ReportsAtOnce))


def test_without_a_word_that_others_finished_a_group_stands_still() -> None:
    assert any("nothing can move" in wrong for wrong in failures(HearsOfNoEnd))


def test_without_the_hand_over_members_differ() -> None:
    assert any("differ" in wrong for wrong in failures(HandsNothingOver))


class LetsGoAtOnce(Gathering):
    """Lets whoever leaves go, without a look at who else has the state."""

    def may_go(self, number: int) -> bool:
        report = self.said(number)
        return report is not None and report.leaves


class CarelessMaster(Master):
    gathering = LetsGoAtOnce


def test_a_last_member_that_is_let_go_at_once_takes_the_state_with_it() -> None:
    found = failures(Participant, master=CarelessMaster)
    assert any("in order" in wrong for wrong in found)


def member(me: int) -> Participant:
    return Participant(me, make_plan=lambda step: f"plan {step}", state=lambda: "all")


def of_kind(actions: list[Action], kind: type) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def test_one_member_steps_alone() -> None:
    alone = member(7)
    first = Round(1, (7,), (1,), begins=True)
    assert alone.enter(first) == [Entered(first, lingers=False), Begin(1)]
    assert alone.began() == [Compute(0, "plan 0", 1)]
    (add,) = alone.computed(0, 1, ("g",))
    (apply,) = alone.added(0, 1, 0, add.pieces[0])  # type: ignore[union-attr]
    assert apply == Apply(0, "plan 0", ("g",), (7,))
    assert alone.applied() == [Acknowledge(0, "plan 0"), Compute(1, "plan 1", 1)]


def test_a_step_in_one_go_is_made_by_one_that_is_alone_and_handed_to_nobody() -> None:
    one = member(0)
    one.enter(Round(1, (0,), (1,), begins=True))
    assert not one.alone(0, 1)  # it has no state yet
    one.began()
    assert one.alone(0, 1)
    assert not one.alone(1, 1)
    assert not one.alone(0, 2)
    assert one.enter(Round(2, (0, 3), (1, 2))) == []  # the step is finished first
    one.made_alone(0, "plan 0")
    one.applied()
    assert not one.alone(1, 2)
    assert Send(3, Snapshot(1, "all")) in one.received(3, 2, Hello(None))


def test_one_that_could_not_begin_has_no_state_in_the_next_round() -> None:
    # Its model may have any values: those of a checkpoint that it could not read.
    one = member(0)
    assert Begin(1) in one.enter(Round(1, (0,), (1,), begins=True))
    assert one.not_begun() == []
    assert Begin(2) in one.enter(Round(2, (0,), (1,), begins=True))


def pair() -> tuple[Participant, list[Action]]:
    """Return the first of two members, which computes step 0, and what it did."""
    one = member(0)
    one.enter(Round(1, (0, 1), (1, 1), begins=True))
    one.received(1, 1, Hello(None))
    one.began()
    one.received(1, 1, Header(0))
    return one, one.computed(0, 1, ("g0", "g1"))


def test_a_round_with_newcomers_begins_when_the_step_under_way_is_made() -> None:
    one, _ = pair()
    grown = Round(2, (0, 1, 5), (1, 1, 2))
    assert one.enter(grown) == []
    one.received(1, 1, Piece(0, 0, "p"))
    one.added(0, 1, 0, "s0")
    (apply,) = one.received(1, 1, Reduced(0, 1, "s1"))
    assert isinstance(apply, Apply)
    said, entered, *_ = one.applied()
    assert said == Send(1, Finished(1))
    assert entered == Entered(grown, lingers=True)
    assert one.version == 1


def test_a_step_that_another_has_no_part_in_is_not_waited_for() -> None:
    one, _ = pair()
    grown = Round(2, (0, 1, 5), (1, 1, 2))
    assert one.enter(grown) == []
    actions = one.received(1, 1, Finished(0))
    assert Entered(grown, lingers=True) in actions
    late, _ = pair()
    assert late.received(1, 1, Finished(0)) == []
    assert Entered(grown, lingers=True) in late.enter(grown)


def test_who_went_on_after_it_gave_its_parts_of_a_step_is_not_waited_for() -> None:
    # Its state does not count in the next round: it makes no use of the step's sums.
    one, _ = pair()
    one.received(1, 1, Piece(0, 0, "p"))
    one.added(0, 1, 0, "s0")
    one.received(1, 1, Reduced(0, 1, "s1"))
    assert one.applied()[-1] == Compute(1, "plan 1", 1)
    assert one.received(1, 1, Finished(0)) == []
    again = Round(2, (0, 1), (1, 2))
    assert Entered(again, lingers=True) in one.enter(again)


def test_a_step_is_given_up_when_a_member_is_lost_or_is_not_in_the_next_round() -> None:
    one, _ = pair()
    grown = Round(2, (0, 1, 5), (1, 1, 2))
    one.enter(grown)
    assert Entered(grown, lingers=False) in one.lost(1, 1)
    other, _ = pair()
    shrunk = Round(2, (0, 5), (1, 2))
    assert Entered(shrunk, lingers=False) in other.enter(shrunk)


def test_a_newcomer_gets_the_state_of_the_oldest() -> None:
    old = member(0)
    old.enter(Round(1, (0,), (1,), begins=True))
    old.began()
    old.enter(Round(2, (0, 3), (1, 2)))
    old.computed(0, 1, ("g",))
    old.added(0, 1, 0, "g")
    old.applied()
    actions = old.received(3, 2, Hello(None))
    assert Send(3, Snapshot(1, "all")) in actions


def made(step: int) -> HandOver:
    return HandOver(step, f"plan {step}", (f"sum {step}",), (0, 1))


def newcomer(copied: int, *followed: int) -> Participant:
    """Return one that has listened to member 0 in round 4, and is not in it."""
    new = member(9)
    new.listen()
    assert new.listened(0, 4, Snapshot(copied, "all")) == [Take(copied, "all")]
    for step in followed:
        assert new.applied() == []
        (follow,) = new.listened(0, 4, made(step))
        assert follow == Follow(step, f"plan {step}", (f"sum {step}",), (0, 1))
    return new


def test_a_newcomer_that_listened_is_handed_the_steps_that_it_has_not() -> None:
    new = newcomer(5, 5, 6)
    new.enter(Round(5, (0, 9), (1, 5)))
    assert new.received(0, 5, Hello(9)) == []
    (first,) = of_kind(new.received(0, 5, made(7)), Follow)
    assert first.step == 7  # type: ignore[union-attr]
    # While it is applied the group tells nothing else; then comes the next one.
    new.received(0, 5, made(8))
    new.applied()
    assert new.version == 9
    assert new.level


def test_a_copy_that_became_the_own_state_is_not_gone_on_with_when_that_is_void() -> (
    None
):
    new = newcomer(5, 5, 6)
    new.enter(Round(5, (0, 9), (1, 5)))
    new.received(0, 5, Hello(9))
    for step in (7, 8):
        new.received(0, 5, made(step))
        new.applied()
    assert new.level
    assert Send(0, Hello(None)) in new.enter(Round(6, (0, 9), (1, 6)))


def test_a_sponsor_hands_over_what_it_has_kept() -> None:
    kept = {7: [made(7), made(8)]}
    sponsor = Participant(
        0, make_plan=str, state=lambda: "all", kept=lambda version: kept[version]
    )
    sponsor.enter(Round(4, (0,), (1,), begins=True))
    sponsor.began()
    for step in range(9):
        if step == 8:
            sponsor.enter(Round(5, (0, 9), (1, 5)))
        sponsor.made_alone(step, "")
        sponsor.applied()
    actions = sponsor.received(9, 5, Hello(None, Copy(0, 4, 7)))
    assert actions[:2] == [Send(9, made(7)), Send(9, made(8))]


def without_sponsor(entered: Round, copy: Copy, hellos: dict[int, int]) -> list[Action]:
    """Return what the first member gives to newcomer 9, whose copy may not count."""
    first = member(entered.leader)
    first.enter(Round(1, (entered.leader,), (1,), begins=True))
    first.began()
    first.enter(entered, later=True)
    first.made_alone(0, "")
    first.applied()
    for other, version in hellos.items():
        first.received(other, entered.number, Hello(version))
    return first.received(9, entered.number, Hello(None, copy))


def test_a_copy_does_not_count_without_its_sponsor() -> None:
    # It may have a step that the sponsor alone had made.
    handed = without_sponsor(Round(5, (1, 9), (1, 5)), Copy(0, 4, 1), {})
    assert Send(9, Snapshot(1, "all")) in handed


def test_a_copy_does_not_count_if_its_sponsor_was_away_since() -> None:
    again = Round(7, (1, 0, 9), (1, 6, 7))
    handed = without_sponsor(again, Copy(0, 4, 1), {0: 1})
    assert Send(9, Snapshot(1, "all")) in handed


def test_a_newcomer_whose_copy_does_not_count_waits_for_the_state() -> None:
    new = newcomer(5, 5)
    new.enter(Round(5, (1, 9), (1, 5)))
    new.received(1, 5, Hello(5))  # fewer steps than the copy has
    assert not new.level
    assert new.received(1, 5, Snapshot(5, "theirs")) == [Take(5, "theirs")]
    new.applied()
    assert new.version == 5
    assert new.level


def test_a_copy_is_no_state_where_nobody_has_one() -> None:
    new = newcomer(5)
    new.enter(Round(5, (0, 9), (5, 5)))
    assert new.received(0, 5, Hello(None)) == [Stateless(5)]


def test_who_is_a_member_listens_to_nobody() -> None:
    new = newcomer(5)
    new.enter(Round(5, (0, 9), (1, 5)))
    assert new.listened(0, 4, made(5)) == []


def test_the_state_of_a_member_that_was_left_out_does_not_count() -> None:
    back = member(1)
    back.enter(Round(1, (1,), (1,), begins=True))
    back.began()
    assert back.version == 0
    # Round 2 was of others; in round 3 it is in again.
    actions = back.enter(Round(3, (0, 1), (1, 3)))
    assert back.version is None
    assert Send(0, Hello(None)) in actions


def test_an_older_round_and_its_messages_are_ignored() -> None:
    one = member(0)
    one.enter(Round(5, (0, 1), (5, 5), begins=True))
    assert one.enter(Round(4, (0,), (4,))) == []
    assert one.received(1, 4, Hello(None)) == []
    assert one.lost(1, 4) == []


def test_where_nobody_has_a_state_only_a_checkpoint_helps() -> None:
    one = member(2)
    one.enter(Round(9, (2, 3), (9, 9)))
    assert one.received(3, 9, Hello(None)) == [Stateless(9)]


def test_pieces_are_added_in_the_members_order_whoever_came_first() -> None:
    one = member(0)
    one.enter(Round(1, (0, 1, 2), (1, 1, 1), begins=True))
    one.received(2, 1, Hello(None))
    assert one.received(1, 1, Hello(None)) == [Begin(1)]
    one.began()
    for other in (2, 1):
        one.received(other, 1, Header(0))
        one.received(other, 1, Piece(0, 0, f"of {other}"))
    (add,) = [
        a for a in one.computed(0, 1, ("mine", "b", "c")) if not isinstance(a, Send)
    ]
    assert add.pieces == ("mine", "of 1", "of 2")  # type: ignore[union-attr]
