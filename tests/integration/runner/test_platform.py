"""The local platform, with real processes of a few lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from elasticdl.errors import PlatformError
from elasticdl.job.names import JobDir, Role
from elasticdl.job.words import ExitReason
from elasticdl.runner.base import Phase, ReplicaKey
from elasticdl.runner.local.platform import LocalPlatform
from elasticdl.runner.local.table import JobPlace, role_command
from elasticdl.runner.oom import OomKills
from elasticdl.testing.scripted import (
    BOUND_SECONDS,
    POLITE,
    STUBBORN,
    ScriptedStage,
    gone,
    launch,
    staged,
)

WORKER_0 = ReplicaKey(Role.WORKER, 0)


def test_a_role_is_started_with_its_name_and_addresses(stage: ScriptedStage) -> None:
    stage.scripts[Role.PS] = (
        "import os; print({k: v for k, v in os.environ.items() if 'ELASTICDL' in k})"
    )
    stage.platform.announce("127.0.0.1:2")
    stage.platform.start(launch(3, 7, role=Role.PS, env={"ELASTICDL_X": "from spec"}))
    ended = stage.until_ended(3, role=Role.PS)
    assert (ended.phase, ended.reason) == (Phase.SUCCEEDED, ExitReason.COMPLETED)
    seen = stage.job_dir.log_file(Role.PS, 3).read_text()
    for part in (
        "'ELASTICDL_ROLE': 'ps'",
        "'ELASTICDL_INDEX': '3'",
        "'ELASTICDL_GENERATION': '7'",
        "'ELASTICDL_MASTER_ADDRESS': '127.0.0.1:1'",
        "'ELASTICDL_PLATFORM_ADDRESS': '127.0.0.1:2'",
        f"'ELASTICDL_JOB_DIR': '{stage.job_dir.root}'",
        "'ELASTICDL_LIFELINE_FD': '",
        "'ELASTICDL_X': 'from spec'",
    ):
        assert part in seen


def test_the_command_of_a_role_is_its_main_module() -> None:
    assert role_command(Role.PS) == (sys.executable, "-P", "-m", "elasticdl.ps.main")


def test_an_empty_entry_of_the_path_does_not_bring_the_current_folder(
    tmp_path: Path,
) -> None:
    given = os.pathsep.join(("", "/of/the/user", ""))
    with staged(JobDir(tmp_path / "job"), {**os.environ, "PYTHONPATH": given}) as stage:
        stage.scripts[Role.PS] = "import os; print(os.environ['PYTHONPATH'])"
        stage.platform.start(launch(role=Role.PS))
        stage.until_ended(role=Role.PS)
        said = stage.job_dir.log_file(Role.PS, 0).read_text()
    assert said == "/of/the/user\n"


def test_a_crash_tells_the_last_traceback(stage: ScriptedStage) -> None:
    # Since 3.13 a traceback shows the line of -c: the word must not stand in it.
    stage.scripts[Role.WORKER] = "print('be' 'gin'); raise ValueError('no such layer')"
    stage.platform.start(launch())
    ended = stage.until_ended()
    assert (ended.reason, ended.exit_code) == (ExitReason.ERROR, 1)
    assert ended.message.startswith("Traceback")
    assert ended.message.endswith("ValueError: no such layer")
    assert "begin" not in ended.message


def test_replicas_that_ended_long_ago_are_forgotten(stage: ScriptedStage) -> None:
    stage.platform.set_capacity(0)  # they wait, and are gone when they are stopped
    for index in range(1200):
        stage.platform.start(launch(index, index + 1))
        key = ReplicaKey(Role.WORKER, index)
        assert stage.platform.stop(key, grace_seconds=0.0, reason="scaled down")
    states = stage.platform.states().states
    assert len(states) == 500
    assert {state.key.index for state in states} == set(range(700, 1200))


def test_logs_of_workers_that_ended_long_ago_go_and_those_of_ps_stay(
    stage: ScriptedStage,
) -> None:
    stage.platform.set_capacity(0)
    logs = [stage.job_dir.log_file(Role.WORKER, index) for index in range(3)]
    of_ps = stage.job_dir.log_file(Role.PS, 0)
    stage.scripts[Role.PS] = "print('it wrote this')"
    stage.platform.start(launch(0, 1, role=Role.PS))
    stage.until_ended(0, role=Role.PS)
    for file in logs:
        file.write_text("what it said")
    for index in range(501):
        stage.platform.start(launch(index, index + 2))
        key = ReplicaKey(Role.WORKER, index)
        assert stage.platform.stop(key, grace_seconds=0.0, reason="scaled down")
    assert [file.exists() for file in logs] == [False, True, True]
    assert "it wrote this" in of_ps.read_text()


def test_a_segmentation_fault_is_the_codes_own_crash(stage: ScriptedStage) -> None:
    stage.scripts[Role.WORKER] = (
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    )
    stage.platform.start(launch())
    ended = stage.until_ended()
    assert (ended.reason, ended.exit_code) == (ExitReason.ERROR, 139)
    assert ended.message == "SIGSEGV"


def test_a_segmentation_fault_is_told_before_what_the_log_ends_with(
    stage: ScriptedStage,
) -> None:
    stage.scripts[Role.WORKER] = (
        "import os, signal; print('Loss 0.7 at step 1', flush=True);"
        "os.kill(os.getpid(), signal.SIGSEGV)"
    )
    stage.platform.start(launch())
    ended = stage.until_ended()
    assert ended.message == "SIGSEGV; its log ends with: Loss 0.7 at step 1"


def test_a_kill_by_somebody_else_is_killed_137(stage: ScriptedStage) -> None:
    stage.platform.start(launch())
    pid = stage.platform.signal(WORKER_0, signal.SIGKILL)
    assert pid == stage.state().pid
    ended = stage.until_ended()
    assert (ended.phase, ended.reason) == (Phase.FAILED, ExitReason.KILLED)
    assert (ended.exit_code, ended.message) == (137, "SIGKILL")


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        (Role.WORKER, ExitReason.OOM_KILLED),
        (Role.PS, ExitReason.OOM_KILLED),
        (Role.MASTER, ExitReason.KILLED),  # it goes on from its journal
    ],
)
def test_a_kill_that_the_kernel_counts_is_out_of_memory(
    stage: ScriptedStage, tmp_path: Path, role: Role, reason: ExitReason
) -> None:
    """Else a replica that outgrows the machine would come back for ever."""
    counter = tmp_path / "vmstat"
    counter.write_text("oom_kill 8\n")
    stage.platform._oom_kills = OomKills([counter])
    for generation, expected in enumerate((reason, ExitReason.KILLED), 1):
        counter.write_text("oom_kill 9\n")
        stage.platform.start(launch(0, generation, role=role))
        stage.platform.signal(ReplicaKey(role, 0), signal.SIGKILL)
        ended = stage.until_ended(0, role=role)
        assert (ended.reason, ended.exit_code) == (expected, 137)


def test_a_stopped_process_can_be_killed(stage: ScriptedStage) -> None:
    stage.scripts[Role.WORKER] = POLITE
    stage.platform.start(launch())
    stage.until_said("ready")
    assert stage.platform.signal(WORKER_0, signal.SIGSTOP)
    assert stage.platform.stop(WORKER_0, grace_seconds=0.05, reason="hung")
    ended = stage.until_ended()
    assert (ended.reason, ended.exit_code) == (ExitReason.DELETED, 137)
    assert ended.message == "hung"


def test_a_polite_process_leaves_within_its_grace(stage: ScriptedStage) -> None:
    stage.scripts[Role.WORKER] = POLITE
    stage.platform.start(launch())
    stage.until_said("ready")
    stage.platform.stop(WORKER_0, grace_seconds=BOUND_SECONDS, reason="scaled down")
    ended = stage.until_ended()
    assert (ended.phase, ended.reason) == (Phase.SUCCEEDED, ExitReason.DELETED)


def test_sigterm_by_hand_is_no_crash_and_is_named(stage: ScriptedStage) -> None:
    stage.scripts[Role.WORKER] = POLITE
    stage.platform.start(launch())
    stage.until_said("ready")
    stage.platform.signal(WORKER_0, signal.SIGTERM)
    assert stage.until_ended().reason is ExitReason.DELETED


def test_a_process_has_a_group_of_its_own_in_the_launchers_session(
    stage: ScriptedStage,
) -> None:
    """Ctrl-C does not reach it, and Linux shares CPUs out among the job's threads."""
    stage.scripts[Role.WORKER] = (
        "import time; print('is up', flush=True); time.sleep(9)"
    )
    stage.platform.start(launch())
    stage.until_said("is up")
    (child,) = (
        one.pid
        for one in psutil.Process().children()
        if any("is up" in part for part in one.cmdline())
    )
    assert os.getsid(child) == os.getsid(0)
    assert os.getpgid(child) == child


def test_helpers_of_a_process_do_not_outlive_it(stage: ScriptedStage) -> None:
    stage.scripts[Role.WORKER] = (
        "import subprocess, sys; "
        "helper = subprocess.Popen([sys.executable, '-S', '-c', 'input()'], "
        "stdin=subprocess.PIPE); print('helper', helper.pid, 'is up', flush=True); "
        "helper.wait()"
    )
    stage.platform.start(launch())
    stage.until_said("is up")
    helper = int(stage.job_dir.log_file(Role.WORKER, 0).read_text().split()[1])
    stage.platform.signal(WORKER_0, signal.SIGKILL)
    stage.until_ended()
    assert gone(helper)


def test_starting_a_generation_twice_starts_it_once(stage: ScriptedStage) -> None:
    stage.platform.start(launch())
    pid = stage.state().pid
    stage.platform.start(launch())
    assert stage.state().pid == pid
    assert len(stage.platform.states().states) == 1


def test_starting_an_ended_generation_again_does_nothing(stage: ScriptedStage) -> None:
    stage.scripts[Role.WORKER] = "pass"
    stage.platform.start(launch())
    stage.until_ended()
    stage.platform.start(launch())
    assert stage.state().phase is Phase.SUCCEEDED


def test_a_newer_generation_replaces_a_dead_one(stage: ScriptedStage) -> None:
    stage.platform.start(launch(0, 1, role=Role.PS))
    stage.platform.signal(ReplicaKey(Role.PS, 0), signal.SIGKILL)
    stage.until_ended(role=Role.PS)
    stage.platform.start(launch(0, 2, role=Role.PS))
    states = stage.platform.states().states
    assert [(s.generation, s.phase) for s in states] == [(2, Phase.RUNNING)]


@pytest.mark.parametrize("role", [Role.PS, Role.WORKER])
def test_a_newer_generation_waits_for_the_end_of_a_living_one(
    stage: ScriptedStage, role: Role
) -> None:
    stage.platform.start(launch(0, 1, role=role))
    old = stage.state(role=role).pid
    stage.platform.start(launch(0, 2, role=role))
    new = stage.until(lambda s: s.phase is Phase.RUNNING, role=role)
    assert new.generation == 2
    assert gone(old)


def test_an_older_generation_is_refused(stage: ScriptedStage) -> None:
    stage.platform.start(launch(0, 5))
    with pytest.raises(PlatformError, match="got generation 4, but 5 is known"):
        stage.platform.start(launch(0, 4))


def test_what_cannot_be_started_has_failed(tmp_path: Path) -> None:
    place = JobPlace(
        JobDir(tmp_path), "", "secret", {}, command=lambda _: ("/no/such/program",)
    )
    platform = LocalPlatform(place)
    platform.start(launch())
    (state,) = platform.states().states
    assert (state.phase, state.exit_code) == (Phase.FAILED, 126)
    assert "/no/such/program" in state.message
    platform.close(grace_seconds=0.0)


def test_workers_wait_for_cpus_and_start_when_there_are_some(
    stage: ScriptedStage,
) -> None:
    stage.platform.set_capacity(1)
    stage.platform.start(launch(0))
    stage.platform.start(launch(1))
    pending = stage.state(1)
    assert pending.phase is Phase.PENDING
    assert pending.pending_reason == "waiting for CPU: 1 of 1 in use"
    assert stage.platform.set_capacity(2) == (2, 0, 0)
    assert stage.state(1).phase is Phase.RUNNING


def test_ps_and_master_do_not_use_the_workers_cpus(stage: ScriptedStage) -> None:
    stage.platform.set_capacity(0)
    stage.platform.start(launch(0, role=Role.PS))
    stage.platform.start(launch(0, role=Role.MASTER))
    assert stage.state(role=Role.PS).phase is Phase.RUNNING
    assert stage.state(role=Role.MASTER).phase is Phase.RUNNING


def test_less_capacity_preempts_and_a_pending_one_takes_a_freed_cpu(
    stage: ScriptedStage,
) -> None:
    for index in range(3):
        stage.platform.start(launch(index))
    running, preempted, _ = stage.platform.set_capacity(2)
    assert (running, preempted) == (2, 1)
    ended = stage.until_ended(2)
    assert (ended.phase, ended.reason) == (Phase.FAILED, ExitReason.PREEMPTED)
    stage.platform.start(launch(3))
    assert stage.state(3).phase is Phase.PENDING
    stage.platform.signal(WORKER_0, signal.SIGKILL)
    assert stage.until(lambda s: s.phase is Phase.RUNNING, 3).pid


def test_a_stubborn_worker_keeps_its_cpu_until_it_is_killed(
    stage: ScriptedStage,
) -> None:
    stage.scripts[Role.WORKER] = STUBBORN
    stage.platform.start(launch(0))
    stage.until_said("deaf")
    stage.platform.start(launch(1, grace_seconds=0.0))
    stage.platform.set_capacity(0)
    ended = stage.until_ended(0)
    assert (ended.reason, ended.exit_code) == (ExitReason.PREEMPTED, 137)


def test_a_pending_worker_can_be_stopped(stage: ScriptedStage) -> None:
    stage.platform.set_capacity(0)
    stage.platform.start(launch(0))
    assert stage.platform.stop(WORKER_0, grace_seconds=1, reason="scaled down")
    assert stage.state().reason is ExitReason.DELETED
    assert not stage.platform.stop(WORKER_0, grace_seconds=1, reason="again")


def test_signalling_nobody_says_so(stage: ScriptedStage) -> None:
    assert stage.platform.signal(WORKER_0, signal.SIGKILL) == 0


def test_closing_leaves_no_process(stage: ScriptedStage) -> None:
    stage.scripts[Role.PS] = STUBBORN
    stage.platform.start(launch(0))
    stage.platform.start(launch(0, role=Role.PS))
    stage.until_said("deaf", role=Role.PS)
    pids = [s.pid for s in stage.platform.states().states]
    stage.platform.close(grace_seconds=0.1)
    assert all(gone(pid) for pid in pids)
    with pytest.raises(PlatformError, match="closing"):
        stage.platform.start(launch(1))


WRITES_AND_SLEEPS = (
    "import os, signal; open(os.environ['TMPDIR'] + '/left', 'w')\n"
    "print('written', flush=True); signal.pause()"
)


def test_temporary_files_of_a_killed_worker_go_with_it(
    stage: ScriptedStage, tmp_path: Path
) -> None:
    stage.scripts[Role.WORKER] = WRITES_AND_SLEEPS
    stage.platform.start(launch(env={"TMPDIR": str(tmp_path)}))
    stage.until_said("written")
    (folder,) = tmp_path.glob("elasticdl-worker-0-*")
    assert [file.name for file in folder.iterdir()] == ["left"]
    stage.platform.close(grace_seconds=0.0)
    assert not folder.exists()


def test_other_roles_share_the_temporary_folder_of_the_machine(
    stage: ScriptedStage,
) -> None:
    # Compiled kernels of PS are kept there.
    stage.scripts[Role.PS] = (
        "import os; print('it is', os.environ.get('TMPDIR'), flush=True)"
    )
    stage.platform.start(launch(role=Role.PS))
    stage.until_ended(role=Role.PS)
    said = stage.job_dir.log_file(Role.PS, 0).read_text()
    assert said == f"it is {os.environ.get('TMPDIR')}\n"


LAUNCHER = """
import os, pathlib, sys
from elasticdl.job.names import JobDir, Role
from elasticdl.runner.base import Launch, ReplicaKey
from elasticdl.runner.local.platform import LocalPlatform, JobPlace

place = JobPlace(JobDir(pathlib.Path(sys.argv[1])), "", "secret", dict(os.environ),
              command=lambda role: (sys.executable, "-c", sys.argv[2]))
platform = LocalPlatform(place)
platform.start(Launch(ReplicaKey(Role.WORKER, 0), 1, 1.0, "1Gi", "low", 1.0))
platform.start(Launch(ReplicaKey(Role.PS, 0), 1, 1.0, "1Gi", "low", 1.0))
print(*(s.pid for s in platform.states().states), flush=True)
input()
"""

# What a role does first. The file says that it holds its lifeline.
HOLDS_ITS_LIFELINE = """
import os, pathlib, signal
from elasticdl.job.context import RoleContext, hold_lifeline
from elasticdl.job.names import Role

context = RoleContext.from_environ(os.environ, Role(os.environ["ELASTICDL_ROLE"]))
hold_lifeline(context)
pathlib.Path(os.environ["TMPDIR"], f"of-{context.name}").touch()
signal.pause()
"""


def test_processes_and_their_files_end_when_the_launcher_is_killed(
    tmp_path: Path,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path / "job"), HOLDS_ITS_LIFELINE],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        assert len(pids) == 2
        end = time.monotonic() + BOUND_SECONDS
        while len([*temporary.rglob("of-*")]) < 2:
            assert time.monotonic() < end, "they never held their lifelines"
            time.sleep(0.01)
        assert all(psutil.pid_exists(pid) for pid in pids)
        os.kill(launcher.pid, signal.SIGKILL)
        launcher.wait()
    assert all(gone(pid) for pid in pids)
    assert [file.name for file in temporary.iterdir()] == ["of-ps-0"]
