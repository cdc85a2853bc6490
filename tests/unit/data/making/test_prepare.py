import fcntl
import sys
import threading

import pytest
from elasticdl.data.making.prepare import prepare
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataPrepareSpec

COUNTING = (
    "import pathlib; p = pathlib.Path('runs'); "
    "p.write_text((p.read_text() if p.exists() else '') + 'x'); "
    "pathlib.Path('t.csv').write_text('a,b\\n1,2\\n'); print('told')"
)


def command(code):
    return DataPrepareSpec(command=[sys.executable, "-c", code])


def test_a_command_runs_once_in_the_root(tmp_path):
    root = tmp_path / "data"
    told = []
    for _ in range(3):
        prepare(command(COUNTING), root, told.append)
    assert (root / "runs").read_text() == "x"
    assert "told" in told


def test_a_command_does_not_run_where_the_data_is_there(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    prepare(command("raise SystemExit(1)"), tmp_path, print, needed=["t.csv"])


def test_a_command_runs_again_when_its_data_is_gone(tmp_path):
    for _ in range(2):
        prepare(command(COUNTING), tmp_path, str, needed=["t.csv"])
        assert (tmp_path / "t.csv").exists()
        (tmp_path / "t.csv").unlink()
    assert (tmp_path / "runs").read_text() == "xx"


def test_a_command_that_makes_no_data_is_told(tmp_path):
    with pytest.raises(DataError, match=r"still no data at train, test"):
        prepare(command("pass"), tmp_path, str, needed=["train", "test"])


def test_a_command_that_fails_is_told_with_its_last_lines(tmp_path):
    code = "import sys; [print('line', i) for i in range(9)]; sys.exit(3)"
    with pytest.raises(DataError, match=r"exit code 3.*line 7 \| line 8") as raised:
        prepare(command(code), tmp_path, str)
    assert "line 3" not in str(raised.value)


def test_a_command_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="'no-such-command' cannot be run"):
        prepare(DataPrepareSpec(command=["no-such-command"]), tmp_path, str)


def test_a_data_set_is_made_once_and_left_alone(tmp_path):
    pytest.importorskip("sklearn")
    spec = DataPrepareSpec(dataset="wine")
    told = []
    prepare(spec, tmp_path, told.append)
    prepare(spec, tmp_path, told.append)
    prepare(spec, tmp_path, told.append, needed=["wine/train", "wine/test"])
    assert len(told) == 1
    assert "142 training and 36 test records" in told[0]


def test_others_wait_for_the_one_that_prepares(tmp_path):
    told = []
    waiting = threading.Event()

    def log(line):
        told.append(line)
        waiting.set()

    with (tmp_path / ".elasticdl-prepare.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(
            target=prepare,
            args=(command(COUNTING), tmp_path, log),
            kwargs={"needed": ["t.csv"]},
        )
        thread.start()
        assert waiting.wait(60)
        assert not (tmp_path / "runs").exists()
        # The other one made the data.
        (tmp_path / "t.csv").write_text("a\n1\n")
    thread.join(60)
    assert not (tmp_path / "runs").exists()
    assert told == ["another process is preparing the data; waiting for it"]


def test_a_root_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"data\.root"):
        prepare(command("pass"), tmp_path / "file", str)
