"""What tests of a master wait for: looks at a rig, or at the master it runs."""

from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.job.names import Role


def leases_known(rig) -> int:
    """Leases whose answers have arrived, so that they are in the journal."""
    return sum(len(replica.held) for replica in rig.replicas.values())


def two_leases(master) -> bool:
    queue = master.job.parts.ledger.queue
    return queue is not None and len(queue.leased) == 2


def live_workers(rig) -> list[int]:
    return rig.runner.running(Role.WORKER)


def first_checkpoint(master) -> bool:
    return master.job.parts.checkpoints.newest is not None


def old_checkpoint(rig) -> str:
    """A checkpoint of version 400; nobody here looks into its shard."""
    place = rig.root / "version-400"
    place.mkdir()
    shard = store.write_shard(place, 0, 1, {}, {"version": 400})
    manifest = Manifest(job="j", strategy="local", version=400, shards=[shard])
    store.write_manifest(place, manifest)
    return str(place)
