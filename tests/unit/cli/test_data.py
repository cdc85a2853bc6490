import argparse

import numpy as np
import pytest
from elasticdl.cli.data import add_parser
from elasticdl.errors import DataError
from elasticdl.views.terminal import progress as progress_module
from elasticdl.views.terminal.progress import RecordProgress


def run(*words):
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["data", *map(str, words)])
    return args.handler(args)


def test_a_data_set_is_made_and_looked_at(tmp_path, capsys):
    assert run("make", "wine", "--dir", tmp_path) == 0
    assert capsys.readouterr().out.startswith("made: 142 training records in ")
    assert run("make", "wine", "--dir", tmp_path) == 0
    assert capsys.readouterr().out.startswith("there already: 142")
    assert run("info", tmp_path / "wine" / "train", "--records", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "record 0:" in lines
    assert any(line.startswith("  features: float[13]") for line in lines)
    assert lines[-1].startswith("recordio: 142 records in")


def test_a_table_is_converted(tmp_path, capsys):
    source = tmp_path / "t.tsv.csv"
    source.write_text("1\t2\n3\n" + "4\n" * 15)
    flags = ["--no-header", "--columns", "a,b", "--delimiter", "tab", "--skip-bad"]
    out = tmp_path / "out"
    assert run("convert", source, out, "--format", "tfrecord", *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == (f"wrote 1 record in 1 file to {out}, 16 bad records left out")
    assert lines[-2] == "left out: 6 more"
    assert "record 1: got 1 columns, expected 2" in lines[0]


def test_arrays_are_chosen_by_flag(tmp_path, capsys):
    source = tmp_path / "a.npz"
    np.savez(source, x=np.zeros((3, 2)), y=np.zeros(9))
    assert run("convert", source, tmp_path / "out", "--arrays", "image=x") == 0
    assert "wrote 3 records" in capsys.readouterr().out
    assert run("info", source, "--arrays", "image=x") == 0
    assert "columns: image" in capsys.readouterr().out


def test_many_files_and_bad_records_are_told_shortly(tmp_path, capsys):
    for i in range(25):
        (tmp_path / f"{i:02d}.csv").write_text("a,b\n1,2\n3\n")
    assert run("info", tmp_path) == 0
    out = capsys.readouterr().out
    assert "... and 5 more files" in out
    assert "bad: " in out


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "a", "b", "--size", "64"),
        ("convert", "a", "b", "--arrays", "x"),
        ("make", "digits", "--format", "csv"),
        (),
    ],
)
def test_wrong_flags_are_usage_errors(words, capsys):
    with pytest.raises(SystemExit) as raised:
        run(*words)
    assert raised.value.code == 2
    assert capsys.readouterr().err


def test_errors_go_to_the_caller(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        run("info", tmp_path / "nothing")


@pytest.mark.parametrize("verb", ["make", "convert", "info"])
def test_help_has_examples(verb, capsys):
    with pytest.raises(SystemExit):
        run(verb, "--help")
    assert f"  elasticdl data {verb} " in capsys.readouterr().out


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(progress_module.time, "monotonic", lambda: self.now)


def test_short_work_shows_no_progress(monkeypatch, capsys):
    Clock(monkeypatch)
    with RecordProgress("working") as progress:
        progress.update(1, 2)
    assert capsys.readouterr().err == ""


def test_long_work_prints_lines_where_no_terminal_is(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with RecordProgress("working") as progress:
        for done in range(30):
            clock.now += 1.0
            progress.update(done, 30)
    assert capsys.readouterr().err.splitlines() == [
        "working: 9 of 30 records",
        "working: 19 of 30 records",
        "working: 29 of 30 records",
    ]


def test_long_work_draws_a_bar_in_a_terminal(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(progress_module.sys.stderr, "isatty", lambda: True)
    with RecordProgress("working") as progress:
        for done in range(5):
            clock.now += 1.0
            progress.update(done, 4)
        assert progress._bar is not None
        assert progress._bar.tasks[0].completed == 4


def test_an_option_for_images_is_not_passed_over_with_other_files(tmp_path):
    source = tmp_path / "t.csv"
    source.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="--size is for images, and these are none"):
        run("convert", source, tmp_path / "out", "--size", "8x8")
    assert not (tmp_path / "out").exists()


def test_a_bad_record_comes_with_a_way_on(tmp_path):
    source = tmp_path / "t.csv"
    source.write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"got 1 columns, .*leave it out with --skip-b"):
        run("convert", source, tmp_path / "out")
