"""What becomes of exchanges: their room is kept, their result judged and remembered.

Owns why it ends. In one situation (all that elastic jobs' workers do not decide) every
exchange either makes the sorted shares better than they ever were, which happens a
finite number of times, or its kind is not tried again. Where pods of others come and go
all the time no situation lasts: there a kind that brought nothing rests, twice as long
each time, as a job does whose worker waited in vain; and so it does where nodes come
and go, as often as they are the same again. Called by `planner.plan`.
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.planner.crew import Worker
from elasticdl.planner.exchange import exchange
from elasticdl.planner.memory import Fairness, Move, Tried
from elasticdl.planner.room import NOWHERE
from elasticdl.planner.scene import Scene
from elasticdl.planner.view import JobKey

# Workers that need longer to leave are not waited for any more.
OPEN_SECONDS = 60.0
# However restless a cluster is, what brings nothing is tried a few times an hour.
LONGEST_REST_SECONDS = 1800.0


def follow(scene: Scene, last: Fairness) -> Fairness:
    """Give receivers the room that was made for them, or keep it for them."""
    frozen = tuple(one for one in last.frozen if one[1] > scene.now)
    if last.frame != scene.frame:
        last = _reframed(scene, last)
    since = {key: at for key, at in last.given if _is_given(scene, key, at)}
    still = tuple(move for move in last.open if _waits(scene, move, last.since))
    given = tuple(
        (key, since.get(key, scene.now))
        for key, crew in scene.crews.items()
        if crew.given
    )
    return replace(last, open=still, frozen=frozen, given=given)


def _is_given(scene: Scene, key: JobKey, at: float) -> bool:
    """Return whether a worker for whom others went is still on its way to its room."""
    crew = scene.crews.get(key)
    if crew is None or scene.now - at >= OPEN_SECONDS:
        return False
    still = any(not one.bound for one in crew.placed)
    crew.given = crew.given or still
    return still


def _waits(scene: Scene, move: Move, since: float) -> bool:
    """Return whether the room of a move is not there yet; if it is, use it."""
    crew = scene.crews.get(move.to)
    node = scene.room.place_of.get(move.node, NOWHERE)
    if crew is None or node == NOWHERE or not crew.grows:
        return False
    if node not in crew.shape.nodes:
        return False
    room, shape = scene.room, crew.shape
    if crew.part and not room.under_ceiling(shape, now=False):
        return False
    if not room.fits(shape, node, now=False) or scene.now - since >= OPEN_SECONDS:
        return False
    allowed = not crew.part or room.under_ceiling(shape, now=True)
    if allowed and room.fits(shape, node, now=True):
        scene.put(Worker(crew, priority=crew.rank), node)
        crew.cause = "was given room for its fair share"
        crew.given = True
        scene.grown += 1
        return False
    room.take(shape, node)
    scene.made_rooms.append((node, shape))
    return True


def _reframed(scene: Scene, last: Fairness) -> Fairness:
    """Return what is known where nodes or jobs are others than before.

    They may be as they were in a moment: a node comes and goes, a job is edited and
    edited back. What the last exchange would have brought nobody knows then.
    """
    known = _known(scene, last)
    for kind in last.judged:
        at = (last.frame, kind)
        known[at] = _in_vain(scene, *at, known.get(at), situation="")
    tried = tuple(known[at] for at in sorted(known))
    return Fairness(scene.frame, tried=tried, open=last.open, since=last.since)


def _known(scene: Scene, last: Fairness) -> dict[tuple[str, tuple[JobKey, ...]], Tried]:
    return {(one.frame, one.kind): one for one in last.tried if _counts(scene, one)}


def _judged(scene: Scene, last: Fairness) -> Fairness:
    """Note what the last exchange brought."""
    shares, same = scene.shares(), last.situation == scene.situation
    known = _known(scene, last)
    for kind in last.judged if shares <= last.best else ():
        at = (scene.frame, kind)
        # Where the situation changed meanwhile it may have been because of that.
        situation = scene.situation if same else ""
        known[at] = _in_vain(scene, *at, known.get(at), situation=situation)
    if same and shares > last.best:
        # What brought nothing here before may do so now.
        known = {k: one for k, one in known.items() if one.situation != scene.situation}
    return replace(
        last,
        situation=scene.situation,
        best=max(shares, last.best) if same else shares,
        tried=tuple(known[at] for at in sorted(known)),
        judged=(),
    )


def _in_vain(
    scene: Scene,
    frame: str,
    kind: tuple[JobKey, ...],
    last: Tried | None,
    *,
    situation: str,
) -> Tried:
    """Note a kind of moves that brought nothing."""
    first = scene.settings.pause_seconds
    seconds = min(2 * last.seconds, LONGEST_REST_SECONDS) if last else first
    return Tried(kind, frame, situation, scene.now + seconds, seconds)


def _rests(scene: Scene, tried: Tried) -> bool:
    """Return whether a kind of moves is not to be tried now."""
    if tried.frame != scene.frame:
        return False
    return tried.situation == scene.situation or scene.now < tried.until


def _counts(scene: Scene, tried: Tried) -> bool:
    """Return whether it was tried in vain so lately that the next time counts more."""
    return _rests(scene, tried) or scene.now < tried.until + LONGEST_REST_SECONDS


def settle(scene: Scene, fairness: Fairness) -> Fairness:
    """Judge the last exchange, and ask for another one; only where nothing grows."""
    if scene.grown or fairness.open:
        return fairness
    fairness = _judged(scene, fairness)
    resting = {one.kind for one in fairness.tried if _rests(scene, one)}
    moves = exchange(scene, frozenset(resting))
    if not moves:
        return fairness
    moved = {key for move in moves for key in move.kind}
    until = scene.now + scene.settings.freeze_seconds
    frozen = [one for one in fairness.frozen if one[0] not in moved]
    frozen += [(key, until) for key in sorted(moved)]
    return replace(
        fairness,
        open=tuple(moves),
        judged=tuple(sorted({move.kind for move in moves})),
        since=scene.now,
        frozen=tuple(frozen),
    )
