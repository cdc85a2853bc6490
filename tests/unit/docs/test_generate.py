"""Generated files: they are what the code says, and a drift is noticed."""

from pathlib import Path

import pytest
from elasticdl.job.classic_flags.table import FLAGS
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.fields import documented

from docs.generate import main as generate

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "text"), list(generate.generated(ROOT)), ids=lambda part: part[:20]
)
def test_generated_files_are_what_is_committed(name, text):
    assert (ROOT / name).read_text(encoding="utf-8") == text, "run `make docs`"


def test_a_drift_is_noticed_and_mended(tmp_path, capsys):
    root = ["--root", str(tmp_path)]
    assert generate.main(["--check", *root]) == 1
    assert (
        "docs/spec.md: differs from the code; run `make docs`"
        in capsys.readouterr().err
    )
    assert generate.main(root) == 0
    assert generate.main(["--check", *root]) == 0
    page = tmp_path / "docs" / "cli.md"
    page.write_text("edited by hand")
    assert generate.main(["--check", *root]) == 1
    assert generate.main(root) == 0
    assert page.read_text().startswith("# The command line")
    assert "written: docs/cli.md" in capsys.readouterr().out


def test_the_specifications_page_has_every_field_and_every_flag():
    page = generate.spec_page()
    for doc in documented(JobSpec, "job"):
        section, _, key = doc.path.rpartition(".")
        assert f"## `{section}`" in page
        assert f"| `{key}` |" in page
    for flag in FLAGS:
        assert f"`--{flag.name}`" in page
