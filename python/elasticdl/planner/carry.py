"""From a view to a scene: who holds what, and which size each job has.

Owns two rules. What was granted counts, not only what is seen: workers beyond a grant
leave, though they still run; workers that a grant names and nobody sees are on their
way. And master and PS count before they exist. Called by `planner.plan`. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import replace

from elasticdl.job.names import Role
from elasticdl.planner.crew import BLOCKED, Crew, Worker
from elasticdl.planner.memory import Asked, Memory, Newest
from elasticdl.planner.pausing import (
    chances,
    handed_on,
    holds,
    inherited,
    known_pauses,
)
from elasticdl.planner.room import NOWHERE, Room, Shape
from elasticdl.planner.scene import Ask, Scene
from elasticdl.planner.situation import (
    apart,
    away,
    frame,
    held,
    situation,
    supply,
)
from elasticdl.planner.view import (
    CPU,
    MEMORY,
    ClusterView,
    Job,
    JobKey,
    Placement,
    Pod,
    Settings,
    Template,
)

_OWN = (CPU, MEMORY)
_BEFORE_WORKERS = (Role.MASTER, Role.PS)
# So long a grant may need until the view has it; then what the view says is right.
_ON_ITS_WAY_SECONDS = 10.0
# So many pods of a job and a role that are not there a plan is about: a master makes no
# more until the next one, and each costs a plan time.
_MOST_UNMADE = 1000


def scene_of(
    view: ClusterView, memory: Memory, settings: Settings, now: float
) -> Scene:
    """Return the scene of a view."""
    jobs = {job.key: job for job in view.jobs}
    nodes = supply(view.nodes, settings, now)
    aside = apart(view, nodes)
    room = Room(
        *(nodes, settings),
        held=held(view),
        away=away(view, nodes),
        apart=aside,
    )
    jobs_on_nodes = frame(view, room.nodes, aside)
    scene = Scene(
        *(room, settings, now, jobs_on_nodes),
        situation(view, jobs_on_nodes, room.nodes),
    )
    scene.on_node = [[] for _ in room.nodes]
    scene.were_going = dict(memory.going)
    workers: dict[JobKey, list[Pod]] = defaultdict(list)
    seen: dict[tuple[JobKey, Role], int] = defaultdict(int)
    for pod in view.pods:
        key = pod.of
        if key in jobs and pod.role == Role.WORKER:
            workers[key].append(pod)
            continue
        if key in jobs and pod.role and not pod.leaving:
            seen[key, pod.role] += 1
        _other_pod(scene, pod)
    asked = {one.key: one for one in memory.asked}
    newest = {one.key: one for one in memory.newest}
    for job in view.jobs:
        crew = scene.crews[job.key] = _crew(
            room, job, workers[job.key], newest.get(job.key)
        )
        _unmade_asks(scene, crew, seen)
        if job.takes_part:
            _elastic(scene, crew, workers[job.key], asked.get(job.key))
        else:
            _fixed(scene, crew, workers[job.key])
    _whose(scene)
    _recall(scene, memory, {pod.of for pod in view.pods if pod.of})
    scene.passed = dict(memory.passed)
    scene.waiting = {one.pods: one.kind for one in scene.asks if one.made}
    found = {_alike(pod) for pod in view.pods if pod.node} if memory.vain else set()
    scene.vains = handed_on(memory.vain, scene.waiting, found, settings, now)
    scene.asks = [one for one in scene.asks if _hopes(scene, one)]
    scene.asked = tuple(scene.asks)
    return scene


def _hopes(scene: Scene, ask: Ask) -> bool:
    """Return whether room is kept for a pod."""
    if ask.made:
        vain = scene.vains.get(ask.pods)
        return vain is None or scene.now >= vain.until
    return not (ask.crew and ask.crew.given_up)


def _alike(pod: Pod) -> str:
    return f"{pod.of or f'{pod.namespace}/{pod.name}'} {pod.role}"


def _recall(scene: Scene, memory: Memory, made: Container[JobKey]) -> None:
    """Put what is remembered of jobs where the steps of a plan look for it."""
    place_of, now = scene.room.place_of, scene.now
    for key, until in memory.fairness.frozen:
        if key in scene.crews:
            scene.crews[key].frozen = until > now
    _recall_pauses(scene, memory, made)
    nodes_of = dict[JobKey | str, tuple[str, ...]](memory.kept)
    nodes_of.update({one.key: one.nodes for one in memory.expected})
    for whose, names in nodes_of.items():
        scene.remembered[whose] = [place_of[one] for one in names if one in place_of]


def _recall_pauses(scene: Scene, memory: Memory, made: Container[JobKey]) -> None:
    known, scene.left = known_pauses(scene.crews, memory, scene.settings, scene.now)
    new = [
        c for c in scene.crews.values() if c.key not in made and c.job.granted is None
    ]
    pauses = scene.pauses = known | inherited(scene.left, new, memory, scene.now)
    waited = {*pauses, *(one.key for one in memory.expected)}
    for key, crew in scene.crews.items():
        if key in waited or any(one.gated for one in crew.unplaced):
            crew.chances = chances(scene.room, crew)
        if pause := pauses.get(key):
            crew.pause = pause if holds(pause, crew, scene.now) else None
            crew.probes = not crew.pause


def grant_of(
    job: Job, asked: Asked | None, now: float
) -> tuple[int, tuple[int, ...]] | None:
    """Return the size that a job was given and who leaves; None without a grant."""
    seen = (job.granted, job.leave)
    if asked and asked.before == seen and now - asked.at < _ON_ITS_WAY_SECONDS:
        return asked.size, asked.leave
    if job.granted is None or job.until <= now:
        return None
    return job.granted, job.leave


def _other_pod(scene: Scene, pod: Pod) -> None:
    room = scene.room
    # One with a node is where it is.
    shape = room.shape(pod.request, Placement() if pod.node else pod.placement)
    if pod.node:
        if (node := room.place_of.get(pod.node, NOWHERE)) == NOWHERE:
            return
        if not pod.leaving:
            room.take(shape, node)
        elif scene.lingers(pod):
            room.hold_on(shape, node)
        else:
            room.hold(shape, node)
    elif not pod.leaving and not pod.gated:
        scene.asks.append(
            Ask(
                shape,
                pod.priority,
                pod.waiting_since,
                who=f"{pod.namespace}/{pod.job or pod.name}",
                pods=_alike(pod),
                kind=f"{pod.namespace} {pod.priority} {pod.request.items}",
                job=pod.of if pod.role in _BEFORE_WORKERS else None,
                nominated=room.place_of.get(pod.nominated, NOWHERE),
            )
        )


def _whose(scene: Scene) -> None:
    """Tie masters and PS that wait to their jobs."""
    scene.asks = [
        replace(ask, crew=scene.crews[ask.job]) if ask.job in scene.crews else ask
        for ask in scene.asks
    ]


def _crew(room: Room, job: Job, pods: list[Pod], last: Newest | None) -> Crew:
    newest = _newest(job, pods, last)
    asks = job.worker.request.plus(newest.more) if newest else job.worker.request
    where = newest.where if newest and not job.worker.queued else None
    shape = room.shape(asks, where or job.worker.placement)
    base = [0] * len(room.resources)
    for template, count in ((job.master, 1), (job.ps, job.num_ps)):
        if template:
            for i, need in room.shape(template.request, template.placement).needs:
                base[i] += need * count
    # Of a worker the mean: what one holds more than others is no share of them all.
    alive = [pod for pod in pods if not pod.leaving]
    shapes = [_shape_of(room, job, pod) for pod in alive] or [shape]
    needs = [0] * len(room.resources)
    for one in shapes:
        for i, need in one.needs:
            needs[i] += need
    parts = {
        (room.part(i, base[i]), room.part(i, needs[i] / len(shapes)))
        for i in range(len(base))
    }
    extended = sum(n for name, n in job.worker.request.items if name not in _OWN)
    tie = (extended, job.worker.request.get(CPU), job.worker.request.get(MEMORY))
    floor, cap = job.floor, job.cap
    if not job.takes_part:
        cap = 0 if job.resting else job.replicas
        floor = min(floor, cap)
    return Crew(job, shape, tuple(sorted(parts)), tie, floor, cap, newest=newest)


def _newest(job: Job, pods: list[Pod], last: Newest | None) -> Newest | None:
    """Return what a worker that is made now will ask for that the template does not.

    As the newest does: somebody puts a container beside each worker, or it got more
    memory after it had run out of it; or its namespace says on which nodes it may be.
    It counts when it is gone, too: else its job would grow into room that the next one
    cannot use, again and again. What a queue says is about one worker alone.
    """
    pod = max(pods, key=_index, default=None)
    if pod is None:
        return None  # of another run numbers may begin anew
    if last and last.arrived == job.arrived and last.index >= pod.index:
        newest = last
    else:
        more = pod.request.beyond(job.worker.request)
        newest = Newest(job.key, job.arrived, pod.index, more)
        if last and last.arrived == job.arrived:
            newest = replace(
                newest,
                where=last.where,
                where_index=last.where_index,
                told=last.told,
            )
    told = job.worker.placement
    if newest.told != told:
        newest = replace(newest, where=None, where_index=-1, told=told)
    there = [one for one in pods if not (one.gated or one.leaving)]
    free = max(there, key=_index, default=None)
    if free is None or free.index < newest.where_index:
        return newest
    return replace(newest, where=free.placement, where_index=free.index)


def _index(pod: Pod) -> int:
    return pod.index


def _shape_of(room: Room, job: Job, pod: Pod) -> Shape:
    """Return what a worker's pod asks for, whatever its template says."""
    # One with a node is where it is.
    return room.shape(pod.request, job.worker.placement if pod.node else pod.placement)


def _unmade_asks(
    scene: Scene, crew: Crew, seen: dict[tuple[JobKey, Role], int]
) -> None:
    job = crew.job
    if job.stopped:
        return
    wanted: tuple[tuple[Role, Template | None, int], ...] = (
        (Role.MASTER, job.master, 1),
        (Role.PS, job.ps, job.num_ps),
    )
    for role, template, count in wanted:
        if template is None:
            continue
        shape = scene.room.shape(template.request, template.placement)
        lacking = max(0, count - seen[job.key, role])
        crew.unseen += lacking
        if lacking > 1 and lacking > scene.room.most(shape):
            crew.blocked = BLOCKED  # nobody gives way to what never begins
            continue
        for _ in range(min(lacking, _MOST_UNMADE)):
            scene.asks.append(
                Ask(
                    *(shape, template.priority, job.arrived),
                    who=str(job.key),
                    pods=f"{job.key} {role}",
                    job=job.key,
                    crew=crew,
                    made=False,
                )
            )


def _worker(scene: Scene, crew: Crew, pod: Pod) -> Worker:
    return Worker(
        crew,
        asks=_shape_of(scene.room, crew.job, pod),
        index=pod.index,
        bound=bool(pod.node),
        running=pod.running,
        gated=pod.gated,
        priority=pod.priority,
        since=pod.waiting_since,
        why=pod.waiting_why,
    )


def _elastic(scene: Scene, crew: Crew, pods: list[Pod], asked: Asked | None) -> None:
    job = crew.job
    alive = [pod for pod in pods if not pod.leaving]
    grant = grant_of(job, None if job.refused else asked, scene.now)
    most = len(alive) + _MOST_UNMADE
    crew.floor, crew.cap = min(crew.floor, most), min(crew.cap, most)
    size = max(crew.floor, len(alive))
    if grant:
        size = min(max(grant[0], crew.floor), job.max, most)
        crew.granted_leave = grant[1]
    going: list[Pod] = []
    if job.resting:
        going, alive, size = alive, [], crew.floor
    elif len(alive) > size:
        named = frozenset(crew.granted_leave)
        alive.sort(key=lambda pod: _leaves_first(pod, named))
        going, alive = alive[: len(alive) - size], alive[len(alive) - size :]
    crew.goes = bool(going)
    going += [pod for pod in pods if pod.leaving]
    there = {pod.index for pod in going}
    crew.still_there = tuple(one for one in crew.granted_leave if one in there)
    _hold(scene, crew, going)
    for pod in sorted(alive, key=lambda pod: pod.index):
        _seat(scene, _worker(scene, crew, pod), pod.node)
    if not job.resting:
        for _ in range(size - len(alive)):
            crew.unplaced.append(Worker(crew, priority=crew.rank))
    crew.before = size


def _hold(scene: Scene, crew: Crew, pods: list[Pod]) -> None:
    """Note workers that are to leave: soon their room is free, or it stays theirs."""
    late = {pod.name for pod in pods if scene.lingers(pod)}
    stays = any(pod.name in late and not pod.leaving for pod in pods)
    crew.deaf = stays or crew.job.refused
    # One that never ends says nothing about others of its job.
    crew.slow = any(pod.name in late and not scene.never_ends(pod) for pod in pods)
    for pod in pods:
        if (node := scene.room.place_of.get(pod.node, NOWHERE)) == NOWHERE:
            continue
        shape = _shape_of(scene.room, crew.job, pod)
        if crew.deaf and not pod.leaving:
            scene.room.take(shape, node)
        elif pod.name in late:
            scene.room.hold_on(shape, node)
        else:
            scene.room.hold(shape, node)


def _leaves_first(pod: Pod, leave: frozenset[int]) -> tuple[bool, bool, int, int]:
    """Order workers as a master does that has more than its grant."""
    return (pod.index not in leave, pod.running, pod.priority, -pod.index)


def _seat(scene: Scene, worker: Worker, node_name: str) -> None:
    crew = worker.crew
    node = scene.room.place_of.get(node_name, NOWHERE)
    if not worker.bound:
        crew.unplaced.append(worker)
    elif node == NOWHERE:
        crew.placed.append(worker)  # on a node that does not count
    else:
        scene.put(worker, node)


def _fixed(scene: Scene, crew: Crew, pods: list[Pod]) -> None:
    """Count a job of fixed size; what it lacks is found room for, like growth."""
    for pod in pods:
        if pod.leaving:
            _hold(scene, crew, [pod])
        elif pod.node:
            _seat(scene, _worker(scene, crew, pod), pod.node)
        elif pod.gated:
            crew.cap -= 1
        elif not 0 < crew.waiting_since <= pod.waiting_since:
            crew.waiting_since, crew.waiting_why = pod.waiting_since, pod.waiting_why
    if not crew.job.resting:
        there = sum(not pod.leaving for pod in pods)
        crew.unseen += max(0, crew.job.replicas - there)
    crew.cap = max(crew.cap, len(crew.placed))
    crew.floor = min(crew.floor, crew.cap, len(pods) + _MOST_UNMADE)
    for _ in range(crew.floor - len(crew.placed)):
        crew.unplaced.append(Worker(crew))
    crew.before = crew.job.replicas
