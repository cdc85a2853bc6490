"""Rendered manifests of every example, as files to compare with.

    python -m tests.chart.snapshots    # writes them anew, after a change that is meant

Versions, random tokens and keys are replaced by words: they make no difference.
"""

import re

from tests.chart.rendering import EXAMPLES, ROOT, chart, render, values_of

FOLDER = ROOT / "tests" / "chart" / "snapshots"


def snapshots():
    """Yield (file, text) of each example, and of a platform as it comes."""
    yield FOLDER / "platform.yaml", snapshot({})
    for file in EXAMPLES:
        yield FOLDER / f"{file.stem}.yaml", snapshot(values_of(file))


def snapshot(values):
    about = chart().metadata
    parts = [f"# {name}\n{text.strip()}\n" for name, text in render(values).items()]
    text = "\n".join(parts).replace(about["version"], "CHART-VERSION")
    text = text.replace(about["appVersion"], "VERSION")
    return re.sub(r"(?m)^(  (?:token|tls\.crt|tls\.key): )\S+$", r"\1RANDOM", text)


def main():
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.yaml"):
        file.unlink()
    for file, text in snapshots():
        file.write_text(text, encoding="utf-8")
    print(f"written: {len(list(FOLDER.glob('*.yaml')))} files in {FOLDER}")


if __name__ == "__main__":
    main()
