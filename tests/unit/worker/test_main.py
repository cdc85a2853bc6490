"""How a worker process ends."""

import subprocess
import sys

# A thread that never ends stands for TensorFlow's, which an ordinary exit waits for.
SCRIPT = """
import atexit, logging, threading
from elasticdl.worker.main import leave
logging.basicConfig(format="%(message)s")
atexit.register(print, "exit functions ran")
threading.Thread(target=threading.Event().wait).start()
print("last words")
logging.getLogger().warning("last line")
leave(11)
"""


def test_worker_leaves_at_once_with_everything_flushed():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 11
    assert done.stdout == "last words\nexit functions ran\n"
    assert done.stderr == "last line\n"
