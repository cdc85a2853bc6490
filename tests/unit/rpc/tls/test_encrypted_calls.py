"""Calls between roles of a job in a cluster: encrypted, and each as itself alone."""

import dataclasses
import datetime
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from elasticdl.errors import FencedError, PlatformError, RefusedError, RpcError
from elasticdl.job import names
from elasticdl.job.context import EnrolmentKeys, RoleContext
from elasticdl.job.heartbeats import Registration, WorkerHeartbeat
from elasticdl.job.names import Role
from elasticdl.job.tasks import LeaseRequest, ReplicaId
from elasticdl.proto import master_pb2, master_pb2_grpc, ps_pb2
from elasticdl.rpc.channel import Peer, client_options, connect
from elasticdl.rpc.enrolment import shown_first
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.ps import lent_calls as ps_lent
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.ps.wire import PsStub
from elasticdl.rpc.server import ThreadedServer, serve
from elasticdl.rpc.tls.certificates import Authority, Credentials, new_key, seeded_key
from elasticdl.rpc.tls.identity import Identity, identity_of
from elasticdl.rpc.tls.peer_name import PeerName
from elasticdl.testing.scripted import TOKEN

from tests.unit.rpc.ps.test_wire import Echo
from tests.unit.rpc.tls.encrypted import EncryptedMaster, authority_in
from tests.unit.rpc.tls.test_certificates import made, write


@pytest.fixture
def master(tmp_path) -> Iterator[EncryptedMaster]:
    made = EncryptedMaster(authority_in(tmp_path / "authority"))
    yield made
    made.close()


@pytest.fixture
def ps(master) -> Iterator[ThreadedServer]:
    """PS 0 of the job."""
    server = served(master.replica(Role.PS))
    yield server
    server.stop(0)


def served(identity: Identity) -> ThreadedServer:
    return serve(
        [ps_wire.handlers(Echo())],
        host="127.0.0.1",
        port=0,
        threads=4,
        token=TOKEN,
        identity=identity,
    )


def client(
    master: EncryptedMaster, identity: Identity, role: Role = Role.WORKER, index=0
) -> MasterClient:
    replica = ReplicaId(role=role, index=index, generation=1)
    return MasterClient(master.address, replica, token=TOKEN, identity=identity)


def ps_stub(ps: ThreadedServer, identity: Identity | None, index: int = 0) -> PsStub:
    return PsStub(connect(ps.address, TOKEN, Peer(Role.PS, index, identity)), "ps")


def pull(worker: int = 0, generation: int = 1) -> ps_pb2.PullRequest:
    header = ps_pb2.RequestHeader(worker=worker, generation=generation)
    return ps_pb2.PullRequest(header=header)


def code_of(call) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def plain_context(environ: dict[str, str]) -> RoleContext:
    told = {
        names.ENV_JOB_DIR: "/nowhere",
        names.ENV_INDEX: "0",
        names.ENV_GENERATION: "1",
        names.ENV_MASTER_ADDRESS: "127.0.0.1:1",
        names.ENV_TOKEN: TOKEN,
    }
    return RoleContext.from_environ(told | environ, Role.WORKER)


def test_a_replica_gets_its_certificate_from_the_master_and_calls_with_it(master, ps):
    worker = master.replica(Role.WORKER, 3)
    assert str(worker.name) == "worker-3 of job ml/digits, generation 1"
    calls = client(master, worker, index=3)
    assert calls.register(Registration()).master_generation == 7
    assert calls.lease(LeaseRequest()) is not None
    reply, _ = ps_stub(ps, worker).pull(pull(3), size=0, timeout=10)
    assert isinstance(reply, ps_pb2.PullReply)


def test_a_server_refuses_who_shows_no_certificate(master, ps):
    for address in (master.address, ps.address):
        with grpc.insecure_channel(address, options=client_options()) as plain:
            call = plain.unary_unary("/elasticdl.Master/Status")
            assert code_of(lambda c=call: c(b"", timeout=5)) in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            )
        trusting = grpc.ssl_channel_credentials(
            master.authority.identity.credentials.authority
        )
        options = [
            ("grpc.ssl_target_name_override", master.authority.identity.name.host)
        ]
        with grpc.secure_channel(address, trusting, options=options) as nameless:
            call = nameless.unary_unary("/elasticdl.Master/Status")
            assert code_of(lambda c=call: c(b"", timeout=5)) in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            )


def test_a_replica_of_another_job_is_refused(master, ps, tmp_path):
    other = EncryptedMaster(authority_in(tmp_path / "other"))
    try:
        stranger = other.replica(Role.WORKER)
    finally:
        other.close()
    with pytest.raises(RpcError, match="unavailable"):
        client(master, stranger).lease(LeaseRequest())


def test_a_replica_of_a_job_with_the_same_authority_is_refused_too(master, tmp_path):
    other = EncryptedMaster(tmp_path / "authority", job="wide")
    try:
        stranger = other.replica(Role.WORKER)
    finally:
        other.close()
    shown = dataclasses.replace(
        stranger.credentials,
        name=dataclasses.replace(stranger.name, job="digits"),  # the server it expects
    )
    with pytest.raises(RefusedError, match="job ml/wide, generation 1 is not of this"):
        client(master, Identity(shown, lambda: shown)).lease(LeaseRequest())


@pytest.mark.parametrize(
    ("role", "method"),
    [
        (Role.WORKER, "PsSync"),
        (Role.WORKER, "Stop"),
        (Role.WORKER, "Status"),
        (Role.PS, "Lease"),
        (Role.PS, "WorkerSync"),
        (Role.PS, "ModelReady"),
        (Role.PS, "Stop"),
    ],
)
def test_a_role_may_not_call_what_is_of_another_one(master, role, method):
    identity = master.replica(role)
    channel = connect(master.address, TOKEN, Peer(Role.MASTER, 0, identity))
    call = channel.unary_unary(f"/elasticdl.Master/{method}")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert f"{role}-0 of job ml/digits, generation 1 may not call" in (
        caught.value.details()
    )


def test_nobody_speaks_for_another_replica(master, ps):
    worker = master.replica(Role.WORKER, 1)
    with pytest.raises(RefusedError, match="says that it is of worker-0, generation 1"):
        client(master, worker, index=0).lease(LeaseRequest())
    with pytest.raises(RefusedError, match="says that it is of ps-0"):
        client(master, worker, Role.PS).register(Registration())
    for request in (pull(0), pull(1, generation=2)):
        with pytest.raises(RefusedError, match="nobody may speak for another one"):
            ps_stub(ps, worker).pull(request, size=0, timeout=10)
        with pytest.raises(RefusedError, match="nobody may speak for another one"):
            ps_stub(ps, worker).pull(request, size=100, timeout=10)


def test_a_ps_serves_workers_alone_and_lends_no_memory(master, ps):
    for role in (Role.PS, Role.MASTER):
        identity = (
            master.authority.identity
            if role is Role.MASTER
            else master.replica(role, 1)
        )
        with pytest.raises(RefusedError, match="may not call"):
            ps_stub(ps, identity).pull(pull(), size=0, timeout=10)
    worker = master.replica(Role.WORKER)
    channel = connect(ps.address, TOKEN, Peer(Role.PS, 0, worker))
    lent = channel.unary_unary(f"/{ps_wire.SERVICE}/{ps_lent.METHOD}")
    assert code_of(lambda: lent(b"", timeout=10)) is grpc.StatusCode.PERMISSION_DENIED


def test_a_client_calls_no_server_but_the_one_it_means(master, ps):
    worker = master.replica(Role.WORKER)
    with pytest.raises(RpcError, match="unavailable"):
        ps_stub(ps, worker, index=1).pull(pull(), size=100, timeout=5)
    # A worker has a certificate, but none of a server.
    false = served(master.replica(Role.WORKER, 5))
    try:
        with pytest.raises(RpcError, match="unavailable"):
            ps_stub(false, worker).pull(pull(), size=100, timeout=5)
    finally:
        false.stop(0)


def test_an_enrolment_is_good_for_nothing_but_a_certificate(master, ps):
    context = master.launched(Role.WORKER)
    shown = shown_first(context.enrolment, TOKEN)
    identity = Identity(shown, lambda: shown)
    with pytest.raises(RefusedError, match=r"not enrolled yet.* may not call"):
        client(master, identity).lease(LeaseRequest())
    with pytest.raises(RefusedError, match=r"not enrolled yet.* may not call"):
        ps_stub(ps, identity).pull(pull(), size=0, timeout=10)


def test_what_a_pod_specification_says_is_worth_nothing_without_the_token(master):
    context = master.launched(Role.PS)
    assert context.enrolment is not None
    assert "PRIVATE" not in repr(vars(context.enrolment))
    guessed = shown_first(context.enrolment, "another token")
    channel = connect(
        master.address, TOKEN, Peer(Role.MASTER, 0, Identity(guessed, lambda: guessed))
    )
    call = master_pb2_grpc.EnrolmentStub(channel)
    assert code_of(lambda: call.Enrol(master_pb2.EnrolRequest(), timeout=5)) in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )
    # The same for one who has the token, and not the seed.
    keys = {seeded_key(TOKEN, seed).private_numbers().private_value for seed in "ab"}
    assert len(keys) == 2


def test_a_replaced_replica_gets_no_certificate(master):
    context = master.launched(Role.WORKER, 2)
    master.fenced.add(("worker", 2))
    with pytest.raises(FencedError, match="replaced"):
        identity_of(context, threading.Event())


def test_a_request_that_is_none_is_refused(master):
    worker = master.replica(Role.WORKER)
    channel = connect(master.address, TOKEN, Peer(Role.MASTER, 0, worker))
    stub = master_pb2_grpc.EnrolmentStub(channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Enrol(master_pb2.EnrolRequest(request=b"none"), timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "cannot be read" in caught.value.details()


def test_a_replica_waits_for_a_master_that_is_away(tmp_path):
    master = EncryptedMaster(authority_in(tmp_path / "authority"))
    context = master.launched(Role.WORKER)
    port = int(master.address.rpartition(":")[2])
    master.close()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(identity_of, context, threading.Event())
        again = EncryptedMaster(tmp_path / "authority", port=port)
        try:
            identity = waiting.result(timeout=60)
        finally:
            again.close()
    identity.close()


def test_half_an_encrypted_surrounding_is_refused_never_plain():
    with pytest.raises(PlatformError, match="ELASTICDL_ENROLMENT is not set though"):
        plain_context({names.ENV_AUTHORITY: "of a chart whose master is older"})
    with pytest.raises(PlatformError, match="ELASTICDL_AUTHORITY is not set though"):
        plain_context({names.ENV_ENROLMENT: "x", names.ENV_ENROLMENT_SEED: "y"})
    assert plain_context({}).enrolment is None


class Renewed:
    """A replica's identity with the clock set to the second half of its life."""

    def __init__(self, master: EncryptedMaster, role: Role) -> None:
        first = master.replica(role)
        shown = first.credentials
        self.identity = Identity(
            shown,
            lambda: master.replica(role).credentials,
            now=lambda: self.time,
        )
        self.time = shown.not_before

    def renew(self) -> None:
        before = self.identity.credentials
        assert self.identity.renew_if_due()
        assert self.identity.credentials is before  # not before it is due
        self.time = before.renew_at()
        assert self.identity.renew_if_due()
        assert self.identity.credentials is not before


def test_a_certificate_is_renewed_without_ending_a_call(master):
    worker = Renewed(master, Role.WORKER)
    calls = client(master, worker.identity)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(calls.worker_sync, WorkerHeartbeat(hold_seconds=1.0))
        worker.renew()
        # A second one: the channel of the call that is held is the one before.
        assert calls.lease(LeaseRequest()) is not None
        assert held.result(timeout=20) is not None
    ps_identity = Renewed(master, Role.PS)
    server = served(ps_identity.identity)
    try:
        stub = ps_stub(server, worker.identity)
        stub.pull(pull(), size=100, timeout=10)
        ps_identity.renew()
        # The connection that stands, and one that is new.
        stub.pull(pull(), size=100, timeout=10)
        ps_stub(server, worker.identity).pull(pull(), size=100, timeout=10)
    finally:
        server.stop(0)


def test_a_certificate_that_has_ended_opens_no_connection_until_it_is_renewed(
    master, tmp_path
):
    authority = Authority.load(tmp_path / "authority")

    def signed(role: Role, hours: float) -> Credentials:
        name = PeerName("ml", "digits", role, 0, 1)
        return authority.own(name, hours=hours)

    short = 1.0 / 3600
    worker = Identity(signed(Role.WORKER, short), lambda: signed(Role.WORKER, 1.0))
    ps = Identity(signed(Role.PS, short), lambda: signed(Role.PS, 1.0))
    server = served(ps)
    try:
        while datetime.datetime.now(datetime.UTC) <= worker.credentials.not_after:
            threading.Event().wait(0.1)
        with pytest.raises(RpcError, match="unavailable"):
            client(master, worker).lease(LeaseRequest())
        assert worker.renew_if_due()
        assert client(master, worker).lease(LeaseRequest()) is not None
        with pytest.raises(RpcError, match="unavailable"):
            ps_stub(server, worker).pull(pull(), size=100, timeout=5)
        assert ps.renew_if_due()
        ps_stub(server, worker).pull(pull(), size=100, timeout=10)
    finally:
        server.stop(0)


@pytest.mark.parametrize(("hours", "anew"), [(0.2, False), (8, True)])
def test_a_certificate_of_a_clock_that_was_ahead_is_made_anew(hours, anew):
    """As of a machine whose own clock had local time, until it was set."""
    authority = Authority.new()
    name = PeerName("ml", "digits", Role.MASTER, 0, 0)
    first, next_ = (authority.own(name, hours=24) for _ in range(2))
    signed = datetime.datetime.now(datetime.UTC)
    set_back = signed - datetime.timedelta(hours=hours)
    identity = Identity(first, lambda: next_, now=lambda: set_back)
    assert identity.renew_if_due()
    assert (identity.credentials is next_) is anew


def test_a_replica_whose_certificate_has_ended_gets_the_next_one(master, monkeypatch):
    """Its master was away, or its machine slept, for longer than that."""
    monkeypatch.setattr(master.authority, "_hours", 1.0 / 3600)
    worker = master.replica(Role.WORKER)
    while datetime.datetime.now(datetime.UTC) <= worker.credentials.not_after:
        threading.Event().wait(0.1)
    with pytest.raises(RpcError, match="unavailable"):
        client(master, worker).lease(LeaseRequest())
    monkeypatch.setattr(master.authority, "_hours", 1.0)
    assert worker.renew_if_due()
    assert client(master, worker).lease(LeaseRequest()) is not None


def test_an_authority_that_is_renewed_in_time_keeps_its_replicas(tmp_path):
    """With the same key: what the first one has signed ends with it."""
    key = new_key()
    folder = tmp_path / "authority"
    folder.mkdir()
    write(folder, made(key, ends=10.0 / 3600), key)
    first = Authority.load(folder)
    master = EncryptedMaster(folder)
    try:
        worker = master.replica(Role.WORKER)
        write(folder, made(key), key)
        for identity in (master.authority.identity, worker):
            assert force(identity)  # both before the first one ends
        while first.days_left() > 0:
            threading.Event().wait(0.05)
        assert client(master, worker).lease(LeaseRequest()) is not None
        assert force(worker)
        assert client(master, worker).lease(LeaseRequest()) is not None
    finally:
        master.close()


def test_an_authority_that_comes_back_by_another_name_parts_nobody(tmp_path, caplog):
    """Who knows the first one finds no issuer of that name, whatever its key."""
    key = new_key()
    folder = tmp_path / "authority"
    folder.mkdir()
    write(folder, made(key), key)
    master = EncryptedMaster(folder)
    try:
        worker = master.replica(Role.WORKER)
        write(folder, made(key, subject="CN=another"), key)
        assert force(master.authority.identity)
        assert force(worker)
        assert client(master, worker).lease(LeaseRequest()) is not None
        assert "another key or name" in caplog.text
    finally:
        master.close()


def test_an_authority_may_be_of_another_one(tmp_path):
    """As an issuer of a site makes it: what is above it is no member's business."""
    root, key = new_key(), new_key()
    folder = tmp_path / "authority"
    folder.mkdir()
    write(folder, made(key, above=root), key)
    # cert-manager puts those above it behind it.
    above = made(root, subject="CN=above").public_bytes(Encoding.PEM)
    with (folder / "tls.crt").open("ab") as file:
        file.write(above)
    master = EncryptedMaster(folder)
    try:
        ps = served(master.replica(Role.PS))
        worker = master.replica(Role.WORKER)
        assert client(master, worker).lease(LeaseRequest()) is not None
        reply, _ = ps_stub(ps, worker).pull(pull(), size=0, timeout=10)
        assert isinstance(reply, ps_pb2.PullReply)
        ps.stop(0)
    finally:
        master.close()


def force(identity: Identity) -> bool:
    """Renew an identity, due or not."""
    identity._now = identity.credentials.renew_at
    return identity.renew_if_due()


def test_a_new_pod_of_a_running_master_enrols_though_the_secret_has_another_key(
    master, tmp_path
):
    Authority.new().write(tmp_path / "authority")
    worker = master.replica(Role.WORKER)
    assert client(master, worker).lease(LeaseRequest()) is not None


def test_a_call_is_held_over_many_renewals(master):
    worker = Renewed(master, Role.WORKER)
    calls = client(master, worker.identity)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(calls.worker_sync, WorkerHeartbeat(hold_seconds=1.5))
        for _ in range(3):
            force(worker.identity)
            assert calls.lease(LeaseRequest()) is not None
        assert held.result(timeout=20) is not None


def test_certificates_that_are_always_due_are_not_asked_for_without_a_pause(master):
    """As where a replica's clock is ahead, or the authority is about to end."""
    shown = master.replica(Role.WORKER).credentials
    renewals = []

    def renew() -> Credentials:
        renewals.append(1)
        return dataclasses.replace(shown)

    identity = Identity(shown, renew, now=lambda: shown.not_after)
    identity.keep_young()
    threading.Event().wait(1.5)
    identity.close()
    assert len(renewals) <= 1


SERVE = """
import sys, threading
from pathlib import Path
from tests.unit.rpc.tls.encrypted import EncryptedMaster
print(EncryptedMaster(Path(sys.argv[1])).address, flush=True)
threading.Event().wait(600)
"""


def test_strangers_that_knock_by_the_thousand_end_no_server(tmp_path):
    """A process of its own: it died where a handshake replaced what others use."""
    folder = authority_in(tmp_path / "authority")
    command = [sys.executable, "-c", SERVE, str(folder)]
    root = Path(__file__).parents[4]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as one:
        try:
            assert one.stdout is not None
            host, _, port = one.stdout.readline().rpartition(":")

            def knock(_: int) -> bool:
                try:
                    with socket.create_connection((host, int(port)), timeout=20):
                        return True
                except OSError:
                    return False

            with ThreadPoolExecutor(16) as pool:
                assert all(pool.map(knock, range(10_000)))
            assert one.poll() is None
        finally:
            one.kill()


def test_a_job_on_one_machine_needs_none_of_it():
    for role in ("master", "ps", "worker"):
        code = (
            f"import sys, elasticdl.{role}.main; "
            "sys.exit('cryptography' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


def test_half_of_a_certificates_life_is_left_when_it_is_renewed(tmp_path):
    authority = Authority.load(authority_in(tmp_path / "authority"))
    begun = datetime.datetime.now(datetime.UTC)
    credentials = authority.own(PeerName("ml", "digits", Role.PS, 0, 1), hours=24)
    after = (credentials.renew_at() - begun) / datetime.timedelta(hours=1)
    assert after == pytest.approx(12, abs=0.01)


def test_a_renewal_that_fails_is_tried_again_and_said(master, caplog):
    worker = Renewed(master, Role.WORKER)
    shown = worker.identity.credentials
    worker.time = shown.renew_at()
    master.fenced.add(("worker", 0))
    assert not worker.identity.renew_if_due()
    assert "cannot be renewed yet" in caplog.text
    assert worker.identity.credentials is shown
    master.fenced.clear()
    assert worker.identity.renew_if_due()
    assert worker.identity.credentials is not shown


def test_an_enrolment_holds_no_private_key(master):
    variables = [f.name for f in dataclasses.fields(EnrolmentKeys)]
    assert variables == ["authority", "certificate", "seed"]
