"""How long a plan of all jobs' sizes takes.

Owns two clusters: one at rest, which is what the controller plans most of the time, and
a large one in which all jobs come at once. The times are of one call of `plan.plan`.
"""

from __future__ import annotations

from dataclasses import replace

from frame import Benchmark, Row, progress, seconds_row, timed

GIB = 1 << 30


def _cluster(nodes: int, jobs: int, workers: int, ps: int):  # type: ignore[no-untyped-def]
    """Return empty nodes, and jobs of up to so many workers each."""
    from elasticdl.planner.view import ClusterView, Job, Node, Resources, Template

    def template(cpu: int, memory: int, priority: int) -> Template:
        amounts = {"cpu": cpu, "memory": memory * GIB}
        return Template(Resources.of(amounts), priority=priority)

    def node(number: int) -> Node:
        cpu = 17624 if number % 3 else 16624
        amounts = {"cpu": cpu, "memory": 98 * GIB, "pods": 110}
        return Node(f"n{number}", Resources.of(amounts))

    def job(number: int) -> Job:
        # Three sizes of workers: what fits where is a question for each of them.
        cpu = (4000, 2000, 3000)[number % 3] if jobs > 20 else 5000
        return Job(
            *("ml", f"j{number}", template(cpu, 8, 1000)),
            min=2,
            max=workers,
            replicas=workers,
            arrived=float(number),
            master=template(1000, 1, 1_000_000),
            ps=template(4000, 5, 1_000_000),
            num_ps=ps,
        )

    return ClusterView(
        tuple(node(number) for number in range(nodes)),
        (),
        tuple(job(number) for number in range(jobs)),
    )


def _daemons(view):  # type: ignore[no-untyped-def]
    """Return the view with four pods of DaemonSets on each node, as clusters have."""
    from elasticdl.planner.view import Expression, Placement, Pod, Resources, Toleration

    pods = []
    for node in view.nodes:
        where = ((Expression("metadata.name", "In", (node.name,)),),)
        for number in range(4):
            all_ = (Toleration(f"t{number}", "Exists"),)
            placement = Placement(tolerations=all_, affinity=where)
            name = f"daemon-{number}-{node.name}"
            pod = Pod("kube-system", name, Resources(), node.name, placement=placement)
            pods.append(pod)
    return replace(view, pods=(*view.pods, *pods))


def _pods(view, plan):  # type: ignore[no-untyped-def]
    """Return the view in which all that is wanted runs, where there is room."""
    from elasticdl.job.names import Role
    from elasticdl.planner.room import NOWHERE, Room
    from elasticdl.planner.view import Holder, Pod, Settings

    room = Room(view.nodes, Settings(), held={})
    pods = []
    for role in (Role.MASTER, Role.PS, Role.WORKER):
        for job in view.jobs:
            size = plan.sizes[job.key]
            template, count = {
                Role.MASTER: (job.master, 1),
                Role.PS: (job.ps, job.num_ps),
                Role.WORKER: (job.worker, size),
            }[role]
            shape = room.shape(template.request, template.placement)
            for index in range(count):
                node = room.best(shape, now=True)
                if node == NOWHERE:
                    continue
                room.take(shape, node)
                pods.append(
                    Pod(
                        *(job.namespace, f"{job.name}-{role}-{index}"),
                        *(template.request, view.nodes[node].name),
                        priority=template.priority,
                        holder=Holder.TRAINING,
                        job=job.name,
                        role=role,
                        index=index,
                        running=True,
                    )
                )
    jobs = tuple(
        replace(job, granted=plan.sizes[job.key], until=1e9) for job in view.jobs
    )
    return replace(view, pods=tuple(pods), jobs=jobs)


def plan_speed() -> list[Row]:
    """Time a plan at rest, and one from nothing."""
    from elasticdl.planner.memory import Memory
    from elasticdl.planner.plan import plan
    from elasticdl.planner.view import Settings

    settings = Settings()
    view, memory = _cluster(133, 20, 60, 7), Memory()
    made = plan(view, memory, settings, 1000.0)
    for turn in range(5):  # until nothing is under way
        view = _pods(view, made)
        made = plan(view, made.memory, settings, 1040.0 + 40 * turn)
    view = _daemons(view)
    at_rest, workers = made.memory, sum(made.sizes.values())
    progress(f"{workers} workers at rest")
    rest = timed(lambda: plan(view, at_rest, settings, 2000.0))
    many = _daemons(_cluster(1000, 100, 56, 1))
    grown = sum(plan(many, Memory(), settings, 1000.0).sizes.values())
    nothing = timed(lambda: plan(many, Memory(), settings, 1000.0))
    return [
        seconds_row(
            "plan_at_rest",
            f"a plan for 133 nodes and 20 jobs with {workers} workers at rest",
            [rest() for _ in range(20)],
            0.05,
        ),
        seconds_row(
            "plan_from_nothing",
            f"a plan that gives 100 jobs {grown:,} workers on 1,000 nodes",
            [nothing() for _ in range(5)],
            3.0,
        ),
    ]


BENCHMARKS = {"plan": Benchmark(plan_speed, seconds=15)}
