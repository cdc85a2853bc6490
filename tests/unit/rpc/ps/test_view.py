"""Which PS a worker lends memory: those of its machine, unless that is switched off."""

from dataclasses import replace

import pytest
from elasticdl.job.heartbeats import PsView
from elasticdl.rpc.ps.view import PsCallView

VIEW = PsView(revision=1, addresses=("127.0.0.1:1",), generations=(1,))


@pytest.mark.parametrize(
    ("address", "lends", "lent"),
    [
        ("127.0.0.1:1", True, True),
        ("127.0.0.1:1", False, False),
        ("10.0.0.7:1", True, False),
    ],
)
def test_memory_is_lent_to_ps_of_this_machine(address, lends, lent):
    view = replace(VIEW, addresses=(address,))
    moved, gone = PsCallView().moved_to(view, "token", lends=lends)
    assert gone == []
    (stub,) = moved.stubs
    assert stub._lender._works is lent
    for channel in moved.channels:
        channel.close()
