"""A held heartbeat that is encrypted is withdrawn like any other."""

import threading

from elasticdl.job.heartbeats import WorkerHeartbeat
from elasticdl.job.names import Role
from elasticdl.job.tasks import ReplicaId
from elasticdl.rpc.held_call import HeldCall
from elasticdl.rpc.master_client import MasterClient
from elasticdl.testing.scripted import TOKEN

from tests.unit.rpc.tls.encrypted import EncryptedMaster, authority_in


def test_an_encrypted_heartbeat_is_withdrawn_also_of_a_channel_of_before(tmp_path):
    """A certificate may be renewed while the master holds the call."""
    master = EncryptedMaster(authority_in(tmp_path / "authority"))
    identity = master.replica(Role.WORKER)
    replica = ReplicaId(role="worker", generation=1)
    client = MasterClient(master.address, replica, token=TOKEN, identity=identity)
    try:
        for renewed in (False, True):
            held = HeldCall()
            held.begins()
            answers: list[object] = []
            beat = threading.Thread(
                target=lambda held=held, answers=answers: answers.append(
                    client.worker_sync(WorkerHeartbeat(hold_seconds=90), held)
                )
            )
            beat.start()
            beat.join(0.5)
            if renewed:
                identity._credentials = master.replica(Role.WORKER).credentials
                assert client.worker_sync(WorkerHeartbeat(hold_seconds=0)) is not None
            assert not answers
            held.withdraw()
            beat.join(20)
            assert answers == [None]
    finally:
        client.close()
        master.close()
