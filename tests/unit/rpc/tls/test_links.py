"""Workers of a group over TLS: both ends are asked who they are, and for which job."""

import socket
import threading

import numpy as np
import pytest
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.links import Door
from elasticdl.collective.messages import Apply, Begin, Compute, Round, Take
from elasticdl.errors import RpcError
from elasticdl.job.names import Role
from elasticdl.rpc.tls.certificates import Authority, new_key
from elasticdl.rpc.tls.identity import Identity
from elasticdl.rpc.tls.links import EncryptedLinks
from elasticdl.rpc.tls.peer_name import PeerName

from tests.unit.rpc.tls.test_certificates import made

SIZE = 3_000_000  # floats: 12 MB, in many records of TLS
STEPS = 5


@pytest.fixture(scope="module")
def authority():
    return Authority.new()


def links(authority: Authority, generation: int, **other) -> EncryptedLinks:
    """A process with a certificate: worker-0 of job digits, or another one."""
    who = {"namespace": "ml", "job": "digits", "role": Role.WORKER, "index": 0, **other}
    name = PeerName(**who, generation=generation)
    return EncryptedLinks(
        Identity(authority.own(name, hours=1), lambda: authority.own(name, hours=1))
    )


def shaken(server: EncryptedLinks, client: EncryptedLinks):
    """Return what each end has of the handshake: a member's number, or a refusal."""
    ends = socket.socketpair()
    found: list[object] = [None, None]

    def shake(side: int, of: EncryptedLinks) -> None:
        ends[side].settimeout(10)
        try:
            connection, member = of.encrypted(ends[side], accepted=side == 0)
            found[side] = member
            # TLS 1.3: who connected hears of a refusal when it reads.
            with connection:
                if side == 0:
                    connection.sendall(b"x")
                elif not connection.recv(1):
                    found[side] = RpcError("closed")
        except (RpcError, OSError) as error:
            found[side] = error
            ends[side].close()

    threads = [
        threading.Thread(target=shake, args=pair)
        for pair in enumerate((server, client))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_each_end_learns_which_member_the_other_one_is(authority) -> None:
    assert shaken(links(authority, 3), links(authority, 8)) == [8, 3]


def test_members_may_have_an_authority_that_is_of_another_one() -> None:
    """As an issuer of a site makes it: what is above it is no member's business."""
    root, key = new_key(), new_key()
    below = Authority(made(key, above=root), key)
    assert shaken(links(below, 3), links(below, 8)) == [8, 3]


@pytest.mark.parametrize(
    ("stranger", "said"),
    [
        ({"job": "other"}, "expected a worker of this job"),
        ({"namespace": "other"}, "expected a worker of this job"),
        ({"role": Role.PS}, "expected a worker of this job"),
        ({"role": Role.MASTER}, "expected a worker of this job"),
    ],
)
def test_another_process_is_no_member(authority, stranger, said) -> None:
    server, _ = shaken(links(authority, 3), links(authority, 8, **stranger))
    assert said in str(server)
    _, client = shaken(links(authority, 8, **stranger), links(authority, 3))
    assert said in str(client)


def test_a_certificate_of_another_authority_is_none(authority) -> None:
    server, client = shaken(links(authority, 3), links(Authority.new(), 8))
    assert "cannot be encrypted" in str(server)
    assert "cannot be encrypted" in str(client)


def test_who_speaks_in_the_clear_is_refused(authority) -> None:
    one, other = socket.socketpair()
    one.settimeout(10)
    other.sendall(b"EDLG" + bytes(100))
    with pytest.raises(RpcError, match="cannot be encrypted"):
        links(authority, 3).encrypted(one, accepted=True)
    other.close()


class Nothing:
    """The state is empty: all begin with zeros."""

    def plan(self, step: int) -> bytes:
        del step
        return b"plan"

    def state(self):
        return [b""]


def run(group: Group, mine: float, sums: list[float]) -> None:
    gradient = np.full(SIZE, mine, np.float32)
    while len(sums) < STEPS:
        match group.next(20):
            case Compute(step, _, number):
                group.computed(step, number, gradient)
            case Apply(_, _, (whole,)):
                assert whole.min() == whole.max()
                sums.append(float(whole[0]))
                group.applied()
            case Begin():
                group.began()
            case Take():
                group.applied()
            case None:
                raise AssertionError("nothing to do for 20 s")


def test_members_make_steps_over_encrypted_connections(authority) -> None:
    numbers = (3, 8, 9)
    groups = {
        number: Group(
            number,
            Nothing(),
            form=GradientForm((SIZE,)),
            door=Door("secret", encryption=links(authority, number, index=rank)),
            most_state_bytes=100,
        )
        for rank, number in enumerate(numbers)
    }
    addresses = {n: f"127.0.0.1:{group.port}" for n, group in groups.items()}
    sums: dict[int, list[float]] = {number: [] for number in numbers}
    threads = [
        threading.Thread(target=run, args=(groups[n], float(n), sums[n]))
        for n in numbers
    ]
    for group in groups.values():
        group.enter(Round(1, numbers, (1, 1, 1), begins=True), addresses)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups.values():
        group.close()
    assert sums == {number: [20.0] * STEPS for number in numbers}


def test_a_worker_is_not_taken_for_the_member_that_it_says_it_is(authority) -> None:
    """Generation 9 connects, and greets as 8; 8 has not come."""
    door = Door("secret", encryption=links(authority, 3))
    form = GradientForm((16,))
    group = Group(3, Nothing(), form=form, door=door, most_state_bytes=100)
    liar = Group(
        8,
        Nothing(),
        form=form,
        door=Door("secret", encryption=links(authority, 9, index=1)),
        most_state_bytes=100,
    )
    addresses = {3: f"127.0.0.1:{group.port}", 8: f"127.0.0.1:{liar.port}"}
    for one in (group, liar):
        one.enter(Round(1, (3, 8), (1, 1), begins=True), addresses)
    broken = group.next(20)
    group.close()
    liar.close()
    assert (broken.round, broken.member) == (1, 8)
