"""The report, opened from its file in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.cli.main import main
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import write_values

from tests.browsing import Browser, Page
from tests.integration.pages.looks import SIZES, assert_looks_good
from tests.recorded import ended_view, recorded_history, write_history

DRAWN = "document.documentElement.dataset.drawn"
HOSTILE = (
    "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
)


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a job's folder as an ended job leaves it, made by the command."""
    folder = tmp_path_factory.mktemp("jobs")
    job_dir = JobDir(folder / "digits")
    history = recorded_history()
    report = ended_view(history, message=HOSTILE).report
    assert report is not None
    write_history(history, job_dir.history_file)
    job_dir.report_file.write_text(report.model_dump_json())
    values = {
        "name": "digits",
        "model": {"definition": "digits.cnn"},
        "data": {"training": "t"},
    }
    write_values(job_dir.spec_file, ValuesFile(job=JobSpec.model_validate(values)))
    file = folder / "digits.html"
    assert main(["report", "digits", "--jobs-dir", str(folder), "-o", str(file)]) == 0
    return file


def opened(chromium: Browser, file: Path, *, width: int, dark: bool) -> Page:
    page = chromium.page()
    page.size(width, 900, dark=dark)
    page.open(file.as_uri())
    page.wait(DRAWN)
    return page


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_all_charts_are_drawn_and_fit(
    chromium: Browser, report_file: Path, width: int, dark: bool
) -> None:
    page = opened(chromium, report_file, width=width, dark=dark)
    assert page.said == []
    figures = page.run("document.querySelectorAll('.plot').length")
    assert figures >= 17
    shapes = "path.js-line, .scatterlayer path.point, .barlayer path"
    drawn = f"(plot) => plot.querySelector({shapes!r})"
    plots = "[...document.querySelectorAll('.plot')]"
    assert page.run(f"{plots}.filter({drawn}).length") == figures
    assert_looks_good(page, width=width, dark=dark)
    assert page.said == []
    page.close()


def test_what_a_job_says_is_never_run(chromium: Browser, report_file: Path) -> None:
    page = opened(chromium, report_file, width=1280, dark=False)
    assert page.run("window.hurt") is None
    assert HOSTILE in page.run("document.querySelector('header').textContent")
    page.close()


def test_a_click_in_the_legend_hides_a_line(
    chromium: Browser, report_file: Path
) -> None:
    page = opened(chromium, report_file, width=400, dark=False)
    lines = "document.querySelectorAll('#workers .scatterlayer .trace').length"
    before = page.run(lines)
    page.run("document.querySelector('#workers + .legend button').click()")
    page.wait(f"{lines} === {before - 1}")
    page.close()


def test_it_prints_in_dark_letters_on_white(
    chromium: Browser, report_file: Path
) -> None:
    page = opened(chromium, report_file, width=1280, dark=True)
    page.run("dispatchEvent(new Event('beforeprint'))")
    page.call("Emulation.setEmulatedMedia", media="print")
    letters = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    assert page.run(letters) == "rgb(28, 35, 48)"
    pdf = page.call("Page.printToPDF", printBackground=False)["data"]
    assert len(pdf) > 50_000
    page.close()
