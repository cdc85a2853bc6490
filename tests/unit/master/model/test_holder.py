"""Who holds a job's model is known in one place, and another kind fits in there."""

import ast
from pathlib import Path

import pytest
from elasticdl import master
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import ExitReason, JobState
from elasticdl.master import assembly
from elasticdl.master.members.member import Member
from elasticdl.master.model.holder import Around, Everybody, ModelHolder
from elasticdl.master.model.holding import Holding
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.facts import Restore
from elasticdl.runner.base import ReplicaKey

MASTER = Path(master.__file__).parent
# The kinds of holders, and who makes them.
MAY_KNOW = {
    "model/holding.py",
    "model/ps_group.py",
    "model/quorum.py",
    "model/worker_holder.py",
    "model/fixed_model.py",
    "assembly.py",
}
WORDS = {"local", "sync", "num_ps", "Strategy", "UpdateMode"}


def knows(path: Path) -> set[str]:
    """The words of one strategy that a module's code has."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=word) | ast.Name(id=word) | ast.arg(arg=word):
                found.add(word)
            case ast.ImportFrom(names=names):
                found |= {name.name for name in names}
            case ast.keyword(arg=str(word)):
                found.add(word)
    return found & WORDS


def test_only_holders_know_who_has_the_model() -> None:
    paths = {str(path.relative_to(MASTER)): path for path in MASTER.rglob("*.py")}
    assert set(paths) >= MAY_KNOW
    knowing = {name for name, path in paths.items() if knows(path)}
    assert knowing <= MAY_KNOW
    assert "model/holding.py" in knowing


@pytest.mark.parametrize(
    ("job", "holding", "shards"),
    [
        ({}, Holding(2), 2),
        ({"ps": {"replicas": 3, "mode": "sync"}}, Holding(3, ticketed=True), 3),
        ({"strategy": "local", "ps": {}}, Holding(0, in_worker=True), 1),
        (
            {"strategy": "allReduce", "ps": {}},
            Holding(0, in_worker=True, in_group=True),
            1,
        ),
        ({"type": "evaluate"}, Holding(0), 1),
    ],
)
def test_where_the_model_is_follows_from_the_specification(
    job: dict[str, object], holding: Holding, shards: int
) -> None:
    known = {
        "name": "x",
        "model": {"definition": "m.f"},
        "data": {"training": "t", "validation": "v"},
        "ps": {"replicas": 2},
        "checkpoint": {"initFrom": "/c"},
        "worker": {"replicas": 1},
    }
    found = Holding.of(JobSpec.model_validate({**known, **job}))
    assert found == holding
    assert (found.shards, found.pins) == (shards, holding.num_ps)


class Peers(ModelHolder):
    """Workers that all have the model: it is gone when the last of them is."""

    outlives_workers = False

    def __init__(self, around: Around) -> None:
        super().__init__(around, Everybody())

    @property
    def known(self) -> bool:
        return any(worker.ready for worker in self._table.workers())

    def registered(self, member: Member, *, now: float) -> Restore:
        del now
        member.restore = Restore(dir=self.rewind_dir, rewind=self.rewind)
        return member.restore

    def asks_worker(self, member):
        del member
        return self._keeper.asks_worker()

    def lost(self, member: Member, *, now: float) -> None:
        if self.begun and not self.known:
            self.go_back(f"{member.name} was the last", now=now)


def test_a_job_of_a_third_kind_of_holder_goes_through_losses_to_its_end(
    rig, monkeypatch
) -> None:
    monkeypatch.setattr(Holding, "of", lambda _: Holding(0, in_worker=True))
    monkeypatch.setattr(assembly, "_holder", lambda *parts: Peers(parts[-1]))

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as job:
            holder, table = job.job.parts.holder, job.job.parts.table

            def at_work() -> int:
                queue = job.job.parts.ledger.queue
                return len(queue.leased) if queue else 0

            await rig.until(lambda: at_work() == 2)
            holder.begins(now=job.job.clock())
            rig.kill("worker-0", ExitReason.KILLED)
            await rig.until(lambda: len([w for w in table.workers() if w.ready]) == 2)
            assert (holder.rewind, holder.view().addresses) == (0, ())
            for name in [worker.name for worker in table.workers()]:
                rig.kill(name, ExitReason.KILLED)
            await rig.until(lambda: holder.rewind == 1 and at_work() == 2)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == 1
        assert {r.replica.split("-")[0] for r in report.relaunches} == {"worker"}
        assert not any(key.role is Role.PS for key in rig.replicas)
        assert ReplicaKey(Role.WORKER, 3) in rig.replicas
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)
