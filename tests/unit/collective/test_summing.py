"""Who sends what to whom of a gradient, and in which order it is added up."""

from __future__ import annotations

from elasticdl.collective.messages import Action, Add, Piece, Reduced, Round, Send
from elasticdl.collective.summing import Summing


def summing(me: int, members: tuple[int, ...], *, direct: bool = True) -> Summing:
    return Summing(me, Round(1, members, (1,) * len(members)), buckets=2, direct=direct)


def test_each_member_adds_up_its_part_and_sends_the_sum_to_all() -> None:
    one = summing(5, (3, 5, 9))
    assert one.computed(0, 1, ("a", "b", "c")) == [
        Send(3, Piece(0, 3, "a")),
        Send(9, Piece(0, 5, "c")),
    ]
    assert one.piece(9, Piece(0, 4, "of 9")) == []
    assert one.piece(3, Piece(0, 4, "of 3")) == [Add(0, 4, ("of 3", "b", "of 9"))]
    told: list[Action] = [Send(m, Reduced(0, 4, "sum")) for m in (3, 9)]
    assert one.added(0, 4, "sum") == told


def test_two_members_send_whole_buckets_and_no_sums() -> None:
    one = summing(5, (3, 5))
    assert one.computed(0, 1, ("all",)) == [Send(3, Piece(0, 1, "all"))]
    # In the members' order, whoever came first.
    assert one.piece(3, Piece(0, 1, "theirs")) == [Add(0, 1, ("theirs", "all"))]
    assert one.added(0, 1, "sum") == []
    assert one.whole(0) is None
    assert one.piece(3, Piece(0, 0, "theirs")) == []
    assert one.computed(0, 0, ("mine",))[1:] == [Add(0, 0, ("theirs", "mine"))]
    one.added(0, 0, "first sum")
    assert one.whole(0) == ("first sum", "sum")


def test_two_members_whose_gradients_do_not_alternate_have_a_part_each() -> None:
    one = summing(5, (3, 5), direct=False)
    assert one.computed(0, 0, ("a", "b")) == [Send(3, Piece(0, 0, "a"))]
    assert one.piece(3, Piece(0, 1, "theirs")) == [Add(0, 1, ("theirs", "b"))]
    assert one.added(0, 1, "sum") == [Send(3, Reduced(0, 1, "sum"))]


def test_a_piece_of_the_next_step_waits_beside_that_of_the_present_one() -> None:
    one = summing(3, (3, 5))
    one.piece(5, Piece(0, 0, "now"))
    one.piece(5, Piece(1, 0, "next"))
    assert one.computed(0, 0, ("mine",))[1:] == [Add(0, 0, ("mine", "now"))]
    assert one.computed(1, 0, ("mine",))[1:] == [Add(1, 0, ("mine", "next"))]


def test_a_piece_that_another_member_adds_up_is_ignored() -> None:
    one = summing(3, (3, 5, 9))
    assert one.piece(5, Piece(0, 1, "theirs")) == []
    assert one.computed(0, 0, ("a", "b", "c"))[2:] == []
