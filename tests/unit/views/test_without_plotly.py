"""What the verbs say that draw charts, where plotly is not installed."""

from __future__ import annotations

import sys

import pytest
from elasticdl.cli.main import main
from elasticdl.errors import ExitCode


@pytest.mark.parametrize(
    "line",
    [
        ["report", "digits", "--jobs-dir", "/nowhere"],
        ["dashboard", "--prometheus", "http://127.0.0.1:9"],
    ],
)
def test_they_say_what_to_install(
    line: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("elasticdl.cli.fig")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(line) == ExitCode.PLATFORM
    said = capsys.readouterr().err
    assert "plotly, which is not there" in said
    assert "pip install 'elasticdl[report]'" in said
