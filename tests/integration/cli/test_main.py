"""The command line: what is parsed, what is said, what the exit codes are."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from elasticdl import client
from elasticdl.cli import faults
from elasticdl.cli.main import main, make_parser
from elasticdl.cli.train import read_values
from elasticdl.client.local.launcher import Timing
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.values.file import load_values

BOUND_SECONDS = 30.0
VALUES = """
kind: job
job:
  name: digits
  model: {definition: digits.cnn.custom_model}
  data: {training: train, validation: test}
  master: {env: {SCRIPT_SECONDS: "1000"}}
"""
# The command line of the real program, but for the master that only pretends.
PROGRAM = """
import sys
from elasticdl.client.local import launcher
launcher.launch.__kwdefaults__["command"] = lambda role: (
    sys.executable, "-m", "elasticdl.testing.scripted_master")
from elasticdl.cli.main import run
run()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "digits.yaml"
    path.write_text(VALUES)
    return path


@pytest.fixture
def jobs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICDL_JOBS_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "jobs"


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def until_running(
    jobs_dir: Path, program: subprocess.Popen[str] | None = None
) -> client.LocalJob:
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        if program is not None and program.poll() is not None:
            raise AssertionError(program.communicate())
        handles = client.list_jobs(jobs_dir) if jobs_dir.exists() else []
        if handles and handles[0].view().status is not None:
            return handles[0]
        time.sleep(0.02)
    raise AssertionError("the job never ran")


def test_help_names_every_verb_and_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for verb in [
        "train",
        "evaluate",
        "predict",
        "list",
        "status",
        "top",
        "logs",
        "stop",
        "scale",
        "kill",
        "capacity",
        "audit",
        "validate",
        "convert-flags",
        "data",
        "completion",
    ]:
        assert f"    {verb}" in text, verb
    for code in ExitCode:
        assert f"  {code.value:<4} " in text


def test_every_verb_has_a_description_and_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = make_parser()
    for verb in parser.get_default("known_verbs"):
        with pytest.raises(SystemExit):
            parser.parse_args([verb, "--help"])
        assert "examples:\n" in capsys.readouterr().out, verb


def test_help_does_not_load_what_is_heavy() -> None:
    program = textwrap.dedent("""
        import sys
        from elasticdl.cli.main import make_parser
        make_parser()
        heavy = {"grpc", "psutil", "sklearn", "tensorflow", "keras"}
        heavy |= {"numpy", "pydantic", "rich", "ruamel.yaml"}
        print(sorted(heavy & set(sys.modules)))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_unknown_verb_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["trainn"])
    assert stop.value.code == ExitCode.USAGE
    assert "no command 'trainn': did you mean `train`?" in capsys.readouterr().err


def test_an_error_is_one_message_and_a_stack_trace_only_on_demand(
    jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "digits"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"error: no job 'digits' in {jobs_dir}; no job was started there yet\n"
    )
    with pytest.raises(client.local.job.NotFoundError):
        main(["--debug", "status", "digits"])


def test_a_wrong_values_file_names_every_mistake(
    jobs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(VALUES.replace("training:", "training_data:"))
    code = main(["train", "-f", str(wrong), "--set", "job.worker.replicas=none"])
    assert code == ExitCode.SPEC
    text = capsys.readouterr().err
    assert "training_data" in text
    assert "job.worker.replicas" in text
    assert not jobs_dir.exists()


def test_a_flag_beside_a_file_is_refused(
    file: Path, jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "-f", str(file), "--num_workers", "3"]) == ExitCode.SPEC
    assert "--set job.worker.replicas" in capsys.readouterr().err


def test_no_jobs_is_not_an_error(
    jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list"]) == ExitCode.OK
    assert "start one with `elasticdl train -f FILE`" in capsys.readouterr().out


def test_completion_scripts_know_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == ExitCode.OK
        assert "capacity" in capsys.readouterr().out


def test_the_completion_of_bash_completes_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "bash"]) == ExitCode.OK
    script = capsys.readouterr().out
    assert "_shtab_elasticdl_train__f_COMPGEN=_shtab_compgen_files" in script
    assert "_shtab_elasticdl_train___jobs_dir_COMPGEN=_shtab_compgen_dirs" in script


@pytest.mark.parametrize("text", ["KILL", "SIGKILL", "kill", "9"])
def test_signals_by_name_and_number(text: str) -> None:
    assert faults.signal_number(text) == signal.SIGKILL


def test_unknown_signals_and_cpus_are_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a signal"):
        faults.signal_number("BANG")
    for text in ("-1", "two", "nan", "inf"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected CPUs"):
            faults.cpus(text)
    assert faults.cpus("1.5") == 1.5
    assert faults.cpus("unlimited") is None


def parsed(jobs_dir: Path, *arguments: str) -> argparse.Namespace:
    args = make_parser().parse_args(arguments)
    args.jobs_dir = jobs_dir
    return args


def test_evaluating_a_training_job_begins_from_its_checkpoints(
    file: Path, jobs_dir: Path
) -> None:
    job = read_values(parsed(jobs_dir, "evaluate", "-f", str(file))).job
    assert (job.type, job.name) == ("evaluate", "digits-evaluate")
    assert job.checkpoint.init_from == str(jobs_dir / "digits" / "checkpoints")
    args = parsed(jobs_dir, "evaluate", "-f", str(file), "--set", "job.name=mine")
    job = read_values(args).job
    assert job.name == "mine"
    assert job.checkpoint.init_from == str(jobs_dir / "digits" / "checkpoints")
    args.overrides.append("job.checkpoint.initFrom=elsewhere")
    assert read_values(args).job.checkpoint.init_from == "elsewhere"


def test_training_an_evaluation_job_is_refused(
    tmp_path: Path, jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "evaluate.yaml"
    other.write_text(VALUES + "  type: evaluate\n  checkpoint: {initFrom: x}\n")
    assert main(["train", "-f", str(other)]) == ExitCode.SPEC
    assert "run it with `elasticdl evaluate -f" in capsys.readouterr().err


def test_ctrl_c_stops_cleanly_and_says_so(file: Path, jobs_dir: Path) -> None:
    with start("train", "-f", str(file)) as program:
        until_running(jobs_dir, program)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=BOUND_SECONDS)
    assert program.returncode == ExitCode.STOPPED, err
    assert "stopping: tasks are handed back, a checkpoint is written" in out
    assert out.splitlines()[-1].startswith("job digits stopped in ")
    assert "it goes on from its newest checkpoint when it is started again" in out
    assert err == ""


def test_a_second_ctrl_c_stops_at_once(file: Path, jobs_dir: Path) -> None:
    with start("train", "-f", str(file)) as program:
        job = until_running(jobs_dir, program)
        job.kill("master", signal.SIGSTOP)  # cannot hear the first one
        assert program.stdout is not None
        program.send_signal(signal.SIGINT)
        for line in program.stdout:
            if "stopping: " in line:
                break
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=BOUND_SECONDS)
    assert program.returncode == ExitCode.STOPPED
    assert err.startswith("logs: ")
    assert err.endswith("job digits stopped: stopped at once\n")
    assert job.condition is client.Condition.INTERRUPTED


def test_a_failed_job_says_why_on_standard_error(file: Path, jobs_dir: Path) -> None:
    file.write_text(VALUES.replace('"1000"', '"0.2", SCRIPT_END: failed'))
    with start("train", "-f", str(file)) as program:
        out, err = program.communicate(timeout=BOUND_SECONDS)
    assert program.returncode == ExitCode.USER_CODE
    assert err.endswith("\njob digits failed: cnn.py:12: loss() returned shape (64,)\n")
    assert (out + err).count("returned shape (64,)") == 1


@pytest.mark.parametrize(
    ("zoo", "told"),
    [
        ("model_zoo", "model_zoo is not a folder; set model.zoo (--model_zoo) to the"),
        (".", "there is no file mymodel.py; did you mean `my_model`?"),
    ],
    ids=["no zoo", "no file"],
)
def test_a_model_that_is_not_where_it_is_looked_for_is_told_of_before_anything_starts(
    zoo: str, told: str, tmp_path: Path, jobs_dir: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text("def build(): ...\n")
    asked = ["--model_def=mymodel.build", f"--model_zoo={zoo}", "--training_data=train"]
    assert main(["train", *asked]) == ExitCode.USER_CODE
    assert told in capsys.readouterr().err
    assert not jobs_dir.exists()


def test_the_verbs_of_a_running_job(
    file: Path, jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = client.launch(
        load_values(file),
        environ=os.environ,
        jobs_dir=jobs_dir,
        command=scripted,
        timing=Timing(probe=0.1),
    )
    try:
        until_running(jobs_dir)
        assert main(["status", "digits"]) == ExitCode.OK
        assert "digits train job" in capsys.readouterr().out
        assert main(["status", "digits", "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["status"]["state"] == "running"
        assert main(["list"]) == ExitCode.OK
        assert "digits  running" in capsys.readouterr().out
        assert main(["scale", "digits", "--workers", "4"]) == ExitCode.OK
        assert capsys.readouterr().out == (
            "job digits: workers 1 -> 4; 3 more to come, nobody who runs is restarted\n"
        )
        assert main(["scale", "digits", "--pause"]) == ExitCode.OK
        assert "paused no -> yes" in capsys.readouterr().out
        assert main(["scale", "digits", "--min", "5"]) == ExitCode.SPEC
        assert "got 5, expected at most worker.replicas, 4" in capsys.readouterr().err
        assert main(["scale", "digits", "--resume"]) == ExitCode.OK
        assert "paused yes -> no" in capsys.readouterr().out
        assert main(["capacity", "digits", "1"]) == ExitCode.OK
        assert "1 CPUs for workers; 0 running" in capsys.readouterr().out
        assert main(["kill", "digits", "worker-1"]) == ExitCode.USAGE
        assert "running now: master-0" in capsys.readouterr().err
        assert main(["kill", "digits", "master", "--signal", "CONT"]) == ExitCode.OK
        assert "sent SIGCONT to master" in capsys.readouterr().out
        assert main(["logs", "digits", "master", "--tail", "1"]) == ExitCode.OK
        assert capsys.readouterr().out == "serving\n"
        watching = threading.Timer(0.2, launcher.stop)
        watching.start()
        assert main(["status", "digits", "--watch"]) == ExitCode.OK
        assert "status      stopped" in capsys.readouterr().out
        assert main(["stop", "digits"]) == ExitCode.JOB_FAILED
        assert "not running (stopped)" in capsys.readouterr().err
        assert main(["status", "digits"]) == ExitCode.OK
        assert "job digits stopped in " in capsys.readouterr().out
        assert main(["audit", "digits"]) == ExitCode.OK
        assert "no epoch of training is finished yet" in capsys.readouterr().out
        assert main(["audit", "digits", "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["ok"] is True
    finally:
        launcher.kill()
        launcher.wait(BOUND_SECONDS)


def test_stop_waits_for_the_end(
    file: Path, jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = client.launch(
        load_values(file), environ=os.environ, jobs_dir=jobs_dir, command=scripted
    )
    try:
        until_running(jobs_dir)
        assert main(["stop", "digits", "--no-wait"]) == ExitCode.OK
        assert main(["stop", "digits"]) in (ExitCode.OK, ExitCode.JOB_FAILED)
        assert "job digits is stopping" in capsys.readouterr().out
    finally:
        launcher.kill()
        launcher.wait(BOUND_SECONDS)


def scripted(role: Role) -> tuple[str, ...]:
    assert role is Role.MASTER
    return (sys.executable, "-m", "elasticdl.testing.scripted_master")


def test_a_wrong_command_line_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scale", "digits", "--workers", "two"])
    assert ended.value.code == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "error: argument --workers: got 'two', expected a number, 0 or more; see "
        "`elasticdl scale --help`\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["scale", "digits"])
    assert ended.value.code == ExitCode.USAGE
    assert "expected one of --workers, --min, --max" in capsys.readouterr().err
