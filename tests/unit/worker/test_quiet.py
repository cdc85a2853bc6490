"""What a worker's log keeps of an import."""

import os
import subprocess
import sys

SCRIPT = """
import os, sys
from elasticdl.worker.quiet import quiet_import
with quiet_import():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are")
    os.write(2, b" written\\nI0000 port.cc:153] oneDNN custom operations are on.")
    os.write(2, b" You may see\\n")
    print("cannot open libcuda", file=sys.stderr)
print("after", file=sys.stderr)
"""


def test_import_noise_is_left_out_and_every_other_line_passes():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert done.stderr.splitlines() == ["cannot open libcuda", "after"]
