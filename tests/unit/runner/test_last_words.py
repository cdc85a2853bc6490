"""What is told of a process that ended."""

import pytest
from elasticdl.runner.last_words import last_words

ERROR = "2026-11-21 04:53:54.521 ERROR worker-0 main: "
INFO = "2026-11-21 04:53:54.521 INFO worker-0 main: "


def told(*lines: str, cause: str = "") -> str:
    return last_words("".join(f"{line}\n" for line in lines), cause)


def test_the_last_error_line_is_told_without_its_time() -> None:
    words = told(
        "noise of a library",
        f"{ERROR}an older error",
        f"{ERROR}net.py:7: division by zero",
        "    oh = 1 / 0",
    )
    assert words == "net.py:7: division by zero\n    oh = 1 / 0"


def test_a_traceback_after_an_error_counts() -> None:
    trace = ("Traceback (most recent call last):", "  File x", "KeyError: 3")
    assert told(f"{ERROR}older", *trace) == "\n".join(trace)


def test_an_indented_trace_belongs_to_the_message_above_it() -> None:
    trace = "    Traceback (most recent call last):"
    words = told(f"{ERROR}net.py:7: no such layer", trace, "    KeyError: 3")
    assert words.splitlines()[0] == "net.py:7: no such layer"
    assert words.splitlines()[-1] == "    KeyError: 3"


def test_without_an_error_what_the_log_ends_with_is_not_told_as_the_reason() -> None:
    words = told(*(f"line {n}" for n in range(50)))
    first, *tail = words.splitlines()
    assert first == "its log ends with: line 49"
    assert tail == [f"line {n}" for n in range(20, 50)]
    assert told(f"{INFO}Loss 0.7") == f"its log ends with: {INFO}Loss 0.7"
    assert told() == ""


def test_an_exception_is_the_reason_also_where_its_traceback_is_cut_off() -> None:
    assert told("ValueError: bad shape") == "ValueError: bad shape"
    cut = ("line 31, in feed", "    return table[key]", "zoo.ads.NoKeyError: 3")
    assert told(*cut).splitlines() == [cut[-1], *cut]


def test_a_signal_is_told_before_what_the_log_ends_with() -> None:
    assert told("Loss 0.7", cause="SIGSEGV") == "SIGSEGV; its log ends with: Loss 0.7"
    assert told(cause="SIGSEGV") == "SIGSEGV"
    assert told(f"{ERROR}got SIGABRT", cause="SIGABRT") == "got SIGABRT"


@pytest.mark.parametrize("folder", ["/usr/lib/python3.11", "/venv/site-packages"])
def test_a_crash_of_native_code_is_told_with_the_users_line(folder: str) -> None:
    words = told(
        f"{INFO}Loss 0.7 at step 1",
        "Fatal Python error: Segmentation fault",
        "",
        "Stack (most recent call first):",
        f'  File "{folder}/ctypes/__init__.py", line 519 in string_at',
        '  File "/zoo/ads.py", line 31 in feed',
        f'  File "{folder}/threading.py", line 3 in run',
        "",
        "Extension modules: numpy._core._multiarray_umath, h5py._errors (total: 2)",
        cause="SIGSEGV",
    )
    assert words.splitlines()[0] == (
        "SIGSEGV; Segmentation fault in feed, /zoo/ads.py:31"
    )
    assert "Extension modules" not in words


def test_the_end_of_a_list_of_modules_is_no_word_of_the_end() -> None:
    assert told("h5py._errors, h5py.h5 (total: 77)", cause="SIGSEGV") == "SIGSEGV"
