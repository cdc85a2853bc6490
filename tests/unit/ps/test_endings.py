"""What a PS that ended leaves in its process: nothing."""

import threading

import numpy as np

# Only a test that fails waits so long.
LIMIT_SECONDS = 60.0


def test_a_ps_that_was_closed_leaves_no_thread(group):
    before = {*threading.enumerate()}
    pair = group(2, sync=True)
    client = pair.ready()
    pair.push(client, pair.gradients(1.0), "a", [0, 0], pull=True)
    assert np.isfinite(client.pull().buffers[0]).all()
    # Another one, which looks after all calls of this process, stays.
    made = [
        thread
        for thread in {*threading.enumerate()} - before
        if thread.name.startswith(("snapshots", "rpc"))
    ]
    assert {"snapshots", "rpc_0"} <= {thread.name for thread in made}
    pair.close()
    for thread in made:
        thread.join(LIMIT_SECONDS)
    assert [thread.name for thread in made if thread.is_alive()] == []
