"""What a role's process may do with the terminal of its launcher: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# The launcher of a shell: it leads the terminal's foreground, and starts one role.
LAUNCHER = """
import os, sys
from pathlib import Path
from elasticdl.runner.local.processes import ChildProcess

read, write = os.pipe()
child = ChildProcess(
    [sys.executable, "-c", sys.argv[2]],
    env={**os.environ, "LIFELINE": str(read)},
    log_file=Path(sys.argv[1]),
    pass_fds=[read],
    temporary=None,
    on_exit=lambda code: None,
)
child.wait_ended(20.0)
child.send(9)
"""
ROLE = """
import getpass, os
from pathlib import Path
from elasticdl.job.context import RoleContext, hold_lifeline
from elasticdl.job.names import JobDir, Role

before = os.getsid(0)
context = RoleContext(
    JobDir(Path("job")), Role.WORKER, 0, 1, "", "token",
    lifeline_fd=int(os.environ["LIFELINE"]),
)
hold_lifeline(context)
try:
    getpass.getpass()
except EOFError:
    print("asked in vain")
print("as before" if os.getsid(0) == before else "another session")
"""


def test_a_role_that_asks_at_the_terminal_fails_there_and_is_not_stopped_for_ever(
    tmp_path: Path,
) -> None:
    log = tmp_path / "role.log"
    # `pty.spawn` gives its command a session and a terminal, as a shell has them.
    terminal = "import pty, sys; pty.spawn(sys.argv[1:])"
    command = [sys.executable, "-c", textwrap.dedent(LAUNCHER), str(log), ROLE]
    subprocess.run(
        [sys.executable, "-c", terminal, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=dict(os.environ),
        timeout=60.0,
        check=True,
    )
    told = log.read_text().splitlines()
    assert told[-2].endswith("asked in vain")
    assert told[-1] == "as before"
