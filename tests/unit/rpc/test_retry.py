"""Trying again."""

import threading

import pytest
from elasticdl.errors import FencedError, NotInitializedError, RefusedError, RpcError
from elasticdl.rpc.retry import retry


def flaky(failures: int, error: RpcError):
    tries = []

    def call() -> int:
        tries.append(1)
        if len(tries) <= failures:
            raise error
        return len(tries)

    return call


def test_a_call_is_tried_until_the_peer_is_back():
    call = flaky(3, RpcError("away"))
    assert retry(call, stop=threading.Event(), first=0.0, most=0.0) == 4


@pytest.mark.parametrize("kind", [FencedError, NotInitializedError, RefusedError])
def test_what_can_never_succeed_is_not_tried_again(kind):
    with pytest.raises(kind):
        retry(flaky(1, kind("no")), stop=threading.Event())


def test_a_stopped_process_gives_up():
    stop = threading.Event()

    def call() -> None:
        stop.set()
        raise RpcError("away")

    with pytest.raises(RpcError, match="away"):
        retry(call, stop=stop)


def test_stopping_while_it_waits_gives_up_too():
    stop = threading.Event()

    def jitter() -> float:
        stop.set()  # between the failure and the wait
        return 0.0

    with pytest.raises(RpcError, match="away"):
        retry(flaky(9, RpcError("away")), stop=stop, jitter=jitter)
