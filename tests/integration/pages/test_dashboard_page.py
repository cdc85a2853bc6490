"""The dashboard page, served by the command, with the figures of a real Prometheus."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elasticdl.dashboards.board import PanelKind
from elasticdl.dashboards.boards import BOARDS

from tests.browsing import Browser, Page
from tests.integration.pages.looks import SIZES, assert_fits, assert_looks_good
from tests.prometheus.server import Prometheus
from tests.prometheus.tools import program
from tests.recorded import SECONDS, STARTED, recorded_history
from tests.recorded_metrics import write_blocks

DRAWN = "document.documentElement.dataset.drawn"
BY_UID = {board.uid: board for board in BOARDS.values()}
NOBODY = "http://127.0.0.1:9"  # the discard port: nobody listens


@contextmanager
def dashboards(prometheus: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command; yields where the page is."""
    command = [
        sys.executable, "-m", "elasticdl.cli.main", "dashboard",
        "--prometheus", prometheus, "--port", "0",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/(?= \(Ctrl-C)", line):
                yield found[0], process
                break
        else:
            raise AssertionError(f"it did not begin to serve: {said}")
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped the recorded job, which ended just now."""
    folder = tmp_path_factory.mktemp("prometheus")
    write_blocks(
        recorded_history(),
        folder / "data",
        promtool=program("promtool"),
        shift_seconds=time.time() - SECONDS - STARTED,
    )
    with Prometheus(folder, [folder / "none.json"], rules="groups: []") as running:
        yield running.url


@pytest.fixture(scope="module")
def site(prometheus: str) -> Iterator[str]:
    with dashboards(prometheus) as (url, _):
        yield url


def opened(
    chromium: Browser, url: str, *, width: int = 1280, dark: bool = False
) -> Page:
    page = chromium.page()
    page.size(width, 900, dark=dark)
    page.open(url)
    page.wait(DRAWN)
    return page


def recorded(site: str, uid: str) -> str:
    """The address of a dashboard, at the time of the recorded job's last minute."""
    end = round(1000 * (time.time() - 20))
    span = {"from": end - 360_000, "to": end, "refresh": ""}
    return f"{site}d/{uid}?{urllib.parse.urlencode(span)}"


@pytest.mark.parametrize("uid", BY_UID)
@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_every_panel_is_drawn_and_fits(
    chromium: Browser, site: str, uid: str, width: int, dark: bool
) -> None:
    page = opened(chromium, recorded(site, uid), width=width, dark=dark)
    assert page.said == []
    assert page.run("document.getElementById('trouble').hidden")
    empty = "[...document.querySelectorAll('.panel .empty')].map((one) => one.closest("
    assert page.run(empty + "'.panel').querySelector('h3').textContent)") == []
    for kind, what in (
        (PanelKind.TIMESERIES, "path.js-line, path.point"),
        (PanelKind.BARGAUGE, ".barlayer path"),
        (PanelKind.STAT, "dd"),
        (PanelKind.TABLE, "td"),
    ):
        wanted = sum(panel.kind is kind for panel in BY_UID[uid].panels)
        panels = f"[...document.querySelectorAll('.panel[data-type={kind}]')]"
        drawn = f"{panels}.filter((one) => one.querySelector('{what}')).length"
        assert page.run(drawn) == wanted, kind
    assert_looks_good(page, width=width, dark=dark)
    page.close()


def test_the_choice_is_in_the_address_and_goes_along_to_the_next_dashboard(
    chromium: Browser, site: str
) -> None:
    page = opened(chromium, recorded(site, "elasticdl-job"))
    assert "var-job=digits" in page.run("location.search")
    links = page.run("[...document.querySelectorAll('#tabs a')].map((one) => one.href)")
    (link,) = [one for one in links if "/d/elasticdl-ps?" in one]
    assert "var-job=digits" in link
    page.run(
        "(() => { const span = document.getElementById('span'); span.value = 'now-3h';"
        " span.dispatchEvent(new Event('change')); })()"
    )
    page.wait(f"{DRAWN} === '2'")
    assert "from=now-3h&to=now" in page.run("location.search")
    page.close()


def test_membership_changes_are_marked(chromium: Browser, site: str) -> None:
    page = opened(chromium, recorded(site, "elasticdl-job"))
    marks = page.run(
        "[...document.querySelectorAll('.plot')].filter((plot) => plot.data && "
        "plot.data.some((trace) => trace.name === 'membership changes')).length"
    )
    assert marks >= 10
    page.close()


def test_a_prometheus_that_is_away_is_told_at_start_and_in_the_page(
    chromium: Browser,
) -> None:
    with dashboards(NOBODY) as (url, _):
        page = opened(chromium, f"{url}d/elasticdl-job")
        words = page.run("document.getElementById('trouble').textContent")
        for part in (NOBODY, "Connection refused", "expected its HTTP API"):
            assert part in words
        assert_fits(page)
        page.close()


def test_a_prometheus_without_jobs_is_told(chromium: Browser, tmp_path: Path) -> None:
    with (
        Prometheus(tmp_path, [tmp_path / "none.json"], rules="groups: []") as empty,
        dashboards(empty.url) as (url, _),
    ):
        page = opened(chromium, f"{url}d/elasticdl-job")
        words = page.run("document.getElementById('trouble').textContent")
        assert "knows no job in this time" in words
        page.close()
