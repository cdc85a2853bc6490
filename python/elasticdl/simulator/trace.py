"""What a simulation is about: nodes, jobs, serving, failures, as a small YAML file.

Owns the models of a trace and what of it depends on the seed. Made by
`simulator.reading` and `simulator.imports`, run by `simulator.simulation`. Must not
know policies.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elasticdl.job.spec.base import (
    NAME_PATTERN,
    QUANTITY_PATTERN,
    CountOrZero,
    PositiveInt,
    PositiveSeconds,
    Seconds,
    SpecModel,
)
from elasticdl.job.spec.problems import Problem, ProblemsError
from elasticdl.job.spec.quantity import parse_bytes

MOST_NODES, MOST_JOBS = 100_000, 1_000_000

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Quantity = Annotated[str, Field(pattern=QUANTITY_PATTERN)]


class Asked(SpecModel):
    """What one pod asks its node for."""

    cpu: float = Field(1.0, ge=0, le=1e6, description="CPUs; fractions are allowed.")
    memory: Quantity = Field("256Mi", description="Memory, as `512Mi` or `4Gi`.")
    extra: dict[str, CountOrZero] = Field(
        default_factory=dict, description="Other resources, as `nvidia.com/gpu: 1`."
    )


class Taint(SpecModel):
    """What keeps pods off a node that do not tolerate its key."""

    key: str = Field(description="The key that pods tolerate.")
    value: str = Field("", description="Its value.")


class Nodes(SpecModel):
    """Equal nodes."""

    count: int = Field(1, ge=1, le=MOST_NODES, description="How many.")
    cpu: float = Field(gt=0, le=1e6, description="CPUs of one.")
    memory: Quantity = Field("1024Gi", description="Memory of one.")
    pods: PositiveInt = Field(110, description="Pods that one takes.")
    extra: dict[str, CountOrZero] = Field(
        default_factory=dict, description="Other resources of one."
    )
    taken: float = Field(
        0.0, ge=0, le=1e6, description="CPUs that others hold on each."
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Its labels.")
    taints: list[Taint] = Field(default_factory=list, description="Its taints.")


class Ps(Asked):
    """The parameter servers of a job."""

    replicas: int = Field(0, ge=0, le=10_000, description="How many.")


class Workers(Asked):
    """The workers of a job."""

    min: CountOrZero = Field(1, description="Its floor.")
    max: int = Field(1, ge=1, le=100_000, description="As many are of use.")
    replicas: CountOrZero = Field(
        0, description="Its size where nobody decides; 0 is `max`."
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict, description="Labels that their nodes must have."
    )
    tolerations: list[str] = Field(
        default_factory=list, description="Keys of taints that they tolerate."
    )
    priority: str = Field("low", description="Name of a class in `priorities`.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        size = self.replicas or self.max
        if not self.min <= size <= self.max:
            expected = f"from min, {self.min}, to max, {self.max}"
            help_ = "order them as min <= replicas <= max"
            raise ProblemsError(Problem("replicas", str(size), expected, help_))
        return self


class Jobs(SpecModel):
    """One job, or several equal ones that come one after the other."""

    name: Name = Field(description="Its name; of several with their number behind it.")
    at: Seconds = Field(0.0, description="When it is submitted, in seconds.")
    count: int = Field(1, ge=1, le=MOST_JOBS, description="How many of them.")
    every: Seconds = Field(0.0, description="Seconds between two of them.")
    master: Asked = Field(
        default_factory=lambda: Asked(cpu=0.1), description="Its master."
    )
    ps: Ps = Field(default_factory=Ps, description="Its parameter servers.")
    workers: Workers = Field(
        default_factory=lambda: Workers.model_validate({}), description="Its workers."
    )
    work: float = Field(
        0.0, ge=0, description="Worker seconds that it needs; 0 runs to the end."
    )
    saturates: CountOrZero = Field(
        0, description="Workers beyond so many bring nothing; 0 is none."
    )
    weight: float = Field(1.0, gt=0, description="Its share beside others'.")


class LogNormal(SpecModel):
    """A log-normal time."""

    median: float = Field(gt=0, description="Seconds.")
    sigma: float = Field(1.0, ge=0, description="Of the logarithm.")


class RandomJobs(SpecModel):
    """Jobs that the seed chooses."""

    name: Name = Field("job", description="Their name, before a number.")
    count: int = Field(ge=1, le=MOST_JOBS, description="How many.")
    within: PositiveSeconds = Field(description="They come within so many seconds.")
    max: list[PositiveInt] = Field(min_length=1, description="Their maxima, by chance.")
    like: Jobs = Field(description="What they have in common.")
    seconds: LogNormal = Field(
        description="How long one takes with its maximum, if it gains by all of them."
    )
    saturating: float = Field(
        0.0, ge=0, le=1, description="Share of them that stops gaining."
    )


class Step(SpecModel):
    """How many replicas there are to be from then on."""

    at: Seconds = Field(description="When, in seconds.")
    replicas: CountOrZero = Field(description="How many.")


class Serving(Asked):
    """A Deployment beside the jobs."""

    name: Name = Field("web", description="Its name.")
    replicas: list[Step] = Field(min_length=1, description="Its size over time.")
    priority: str = Field("serving", description="Name of a class in `priorities`.")


class Failure(SpecModel):
    """Something that goes wrong for a while."""

    at: Seconds = Field(description="When, in seconds.")
    kind: Literal["node", "api", "controller", "slowLeaving"] = Field(
        description="A node is lost; the API server is away; the controller is dead; "
        "workers take `leave` seconds to leave."
    )
    seconds: Seconds = Field(0.0, description="For how long; 0 is to the end.")
    node: str = Field("", description="Which node; empty is one by chance.")
    leave: Seconds = Field(15.0, description="Of slowLeaving.")


class Priority(SpecModel):
    """A PriorityClass."""

    value: int = Field(description="The higher one goes first.")
    preempts: bool = Field(True, description="Whether it pushes others out.")


class Times(SpecModel):
    """How long things take, in seconds."""

    pod_start: Seconds = Field(2.0, description="From a node to a running pod.")
    master_start: Seconds = Field(2.0, description="From there to a working master.")
    first_step: Seconds = Field(
        5.0, description="From a worker's pod to its first step."
    )
    leave: Seconds = Field(1.5, description="From a word to a worker's end.")
    grant: Seconds = Field(0.2, description="From a decision to the master.")
    controller: Seconds = Field(0.5, description="From a change to a decision.")


def _classes() -> dict[str, Priority]:
    """Return the platform's classes, and one of serving."""
    return {
        "low": Priority(value=1_000, preempts=False),
        "high": Priority(value=1_000_000),
        "serving": Priority(value=2_000_000),
    }


class Trace(SpecModel):
    """Everything that is simulated, but for the policy."""

    name: Name = Field("trace", description="Its name; of a file, the file's.")
    about: str = Field("", description="What it shows, in a sentence.")
    seed: int = Field(1, description="Of the scheduler's ties and of random jobs.")
    until: Seconds = Field(
        0.0, description="Where it ends; 0 is when the last job is done."
    )
    ceiling: float = Field(
        1.0, gt=0, le=1, description="Share of CPU and memory that is filled."
    )
    nodes: list[Nodes] = Field(min_length=1, description="The nodes.")
    jobs: list[Jobs] = Field(default_factory=list, description="The jobs.")
    random_jobs: RandomJobs | None = Field(None, description="Jobs by chance.")
    serving: list[Serving] = Field(default_factory=list, description="Deployments.")
    failures: list[Failure] = Field(default_factory=list, description="Failures.")
    priorities: dict[str, Priority] = Field(
        default_factory=_classes, description="The PriorityClasses."
    )
    times: Times = Field(default_factory=Times, description="How long things take.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        problems = list(self._unknown_classes())
        endless = any(not job.work for job in self.jobs) or not self._has_jobs
        if endless and not self.until:
            expected = "the second at which the trace ends"
            help_ = "add `until`, for a job without `work` never ends"
            problems.append(Problem("until", "nothing", expected, help_))
        problems += self._unknown_resources()
        problems += self._too_large() if not self.until else []
        names = Counter(job.name for job in self.all_jobs())
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            expected = "each name once"
            problems.append(Problem("jobs", f"{twice[0]!r} twice", expected, "rename"))
        known = {name for name, _ in self.each_node()}
        for number, failure in enumerate(self.failures):
            if failure.node and failure.node not in known:
                path = f"failures.{number}.node"
                expected = f"a node, as {min(known)!r}"
                problems.append(
                    Problem(path, repr(failure.node), expected, "correct it")
                )
        if problems:
            raise ProblemsError(*problems)
        return self

    def _unknown_resources(self) -> list[Problem]:
        """Return what no node has, mostly a slip: nothing would ever run."""
        jobs = [(f"jobs.{n}", job) for n, job in enumerate(self.jobs)]
        if self.random_jobs is not None:
            jobs.append(("random_jobs.like", self.random_jobs.like))
        asked: list[tuple[str, Asked]] = []
        for path, job in jobs:
            asked.append((f"{path}.master", job.master))
            asked.append((f"{path}.ps", job.ps))
            asked.append((f"{path}.workers", job.workers))
        asked += [(f"serving.{n}", one) for n, one in enumerate(self.serving)]
        known = sorted({name for nodes in self.nodes for name in nodes.extra})
        expected = f"what a node has: {', '.join(known) or 'CPU and memory alone'}"
        help_ = "or add it to a node's `extra`"
        return [
            Problem(f"{path}.extra", repr(name), expected, help_)
            for path, one in asked
            for name, amount in one.extra.items()
            if amount and name not in known
        ]

    def _too_large(self) -> list[Problem]:
        """Return jobs whose workers fit on no node: they would wait for ever."""
        expected = "what a node has beside what others hold there"
        return [
            Problem(
                f"jobs.{n}.workers",
                "more than any node has",
                expected,
                "or add `until`",
            )
            for n, job in enumerate(self.jobs)
            if not any(
                job.workers.cpu <= one.cpu - one.taken
                and parse_bytes(job.workers.memory) <= parse_bytes(one.memory)
                for one in self.nodes
            )
        ]

    @property
    def _has_jobs(self) -> bool:
        return bool(self.jobs or self.random_jobs)

    def _unknown_classes(self) -> list[Problem]:
        used = [
            (f"jobs.{n}.workers", j.workers.priority) for n, j in enumerate(self.jobs)
        ]
        used += [(f"serving.{n}", one.priority) for n, one in enumerate(self.serving)]
        expected = "one of " + ", ".join(f"`{name}`" for name in self.priorities)
        return [
            Problem(f"{path}.priority", repr(name), expected, "or add it to priorities")
            for path, name in [*used, ("priorities", "high")]
            if name not in self.priorities
        ]

    def each_node(self) -> list[tuple[str, Nodes]]:
        """Return the nodes by name."""
        found: list[tuple[str, Nodes]] = []
        for nodes in self.nodes:
            first = len(found)
            found += [(f"node-{first + n}", nodes) for n in range(nodes.count)]
        return found

    def all_jobs(self) -> list[Jobs]:
        """Return each job by itself, in the order in which they come."""
        found = []
        for jobs in self.jobs:
            for number in range(jobs.count):
                name = f"{jobs.name}-{number}" if jobs.count > 1 else jobs.name
                at = jobs.at + number * jobs.every
                found.append(
                    jobs.model_copy(update={"name": name, "at": at, "count": 1})
                )
        if self.random_jobs is not None:
            found += _drawn(self.random_jobs, random.Random(self.seed))
        return sorted(found, key=lambda job: job.at)

    @property
    def last_arrival(self) -> float:
        """When the last job comes."""
        return max((job.at for job in self.all_jobs()), default=0.0)

    @property
    def measured(self) -> str:
        """The resource whose use is told: GPUs where jobs ask for them, else CPUs."""
        asked = [job.workers.extra for job in self.jobs]
        if self.random_jobs is not None:
            asked.append(self.random_jobs.like.workers.extra)
        return next((name for extra in asked for name in extra), "cpu")


def _drawn(wanted: RandomJobs, chance: random.Random) -> list[Jobs]:
    """Return the jobs that a seed chooses."""
    found = []
    for number in range(wanted.count):
        most = chance.choice(wanted.max)
        seconds = wanted.seconds
        work = most * seconds.median * math.exp(chance.gauss(0.0, seconds.sigma))
        share = chance.choice((0.25, 0.5))
        knee = max(1, int(most * share)) if chance.random() < wanted.saturating else 0
        floor = min(wanted.like.workers.min, most)
        workers = wanted.like.workers.model_copy(
            update={"max": most, "min": floor, "replicas": 0}
        )
        found.append(
            wanted.like.model_copy(
                update={
                    "name": f"{wanted.name}-{number}",
                    "at": round(chance.uniform(0.0, wanted.within), 1),
                    "work": round(work, 1),
                    "saturates": knee,
                    "workers": workers,
                }
            )
        )
    return found
