"""What is told of a process that ended."""

from pathlib import Path

from elasticdl.runner.local.processes import last_words

ERROR = "2026-11-21 04:53:54.521 ERROR worker-0 main: "


def told(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "log"
    file.write_text("".join(f"{line}\n" for line in lines))
    return last_words(file)


def test_the_last_error_line_is_told_without_its_time(tmp_path: Path) -> None:
    words = told(
        tmp_path,
        "noise of a library",
        f"{ERROR}an older error",
        f"{ERROR}net.py:7: division by zero",
        "    oh = 1 / 0",
    )
    assert words == "net.py:7: division by zero\n    oh = 1 / 0"


def test_a_traceback_after_an_error_counts(tmp_path: Path) -> None:
    trace = ("Traceback (most recent call last):", "  File x", "KeyError: 3")
    assert told(tmp_path, f"{ERROR}older", *trace) == "\n".join(trace)


def test_an_indented_trace_belongs_to_the_message_above_it(tmp_path: Path) -> None:
    trace = "    Traceback (most recent call last):"
    words = told(tmp_path, f"{ERROR}net.py:7: no such layer", trace, "    KeyError: 3")
    assert words.splitlines()[0] == "net.py:7: no such layer"
    assert words.splitlines()[-1] == "    KeyError: 3"


def test_without_an_error_it_is_the_end_of_the_log(tmp_path: Path) -> None:
    words = told(tmp_path, *(f"line {n}" for n in range(50)))
    assert words.splitlines() == [f"line {n}" for n in range(20, 50)]
