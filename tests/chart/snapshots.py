"""Rendered manifests of every example, as files to compare with.

    python -m tests.chart.snapshots    # writes them anew, after a change that is meant

One job and one platform are whole, as .yaml; each other example is what differs from
them (`differences`), as .diff. Versions, random tokens and keys are replaced by words:
they make no difference. So does a job's name, which the whole job takes from the other.
"""

import re

from tests.chart.differences import applied, differences, objects_of
from tests.chart.rendering import EXAMPLES, ROOT, chart, render, values_of

FOLDER = ROOT / "tests" / "chart" / "snapshots"
PLATFORM = "platform"  # of no example: as it comes
JOB = "digits"
WHOLE = (PLATFORM, JOB)
NAMES = [PLATFORM, *(file.stem for file in EXAMPLES)]
# The job's name in what the chart makes; not where the values say a data set or a file.
_NAME = re.compile(rf"(?<!dataset: )(?<![./])\b{JOB}\b(?![./])|(?<=jobs/ml/){JOB}\b")


def file_of(name):
    return FOLDER / f"{name}.{'yaml' if name in WHOLE else 'diff'}"


def rendered(name):
    """Return an example's manifests as one text."""
    files = {file.stem: file for file in EXAMPLES}
    about = chart().metadata
    texts = render(values_of(files[name]) if name in files else {})
    parts = [f"# {template}\n{text.strip()}\n" for template, text in texts.items()]
    text = "\n".join(parts).replace(about["version"], "CHART-VERSION")
    text = text.replace(about["appVersion"], "VERSION")
    return re.sub(r"(?m)^(  (?:token|tls\.crt|tls\.key): )\S+$", r"\1RANDOM", text)


def snapshot(name):
    """Return what the example's file should hold, beside the whole ones in git."""
    text = rendered(name)
    return text if name in WHOLE else differences(_base(text), objects_of(text))


def news(name):
    """Return what is rendered now and was not, as differences; empty if the same."""
    now, text = rendered(name), file_of(name).read_text(encoding="utf-8")
    was = objects_of(text) if name in WHOLE else applied(_base(now), text)
    return differences(was, objects_of(now))


def _base(text):
    """Return the objects of the whole job, or platform, that a text differs from."""
    job = re.search(r'(?m)^    elasticdl-job-name: "(\S+)"$', text)
    base = file_of(JOB if job else PLATFORM).read_text(encoding="utf-8")
    return objects_of(_NAME.sub(job[1], base) if job else base)


def main():
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        if file.stem not in WHOLE:
            file.unlink()
    # First the whole ones, which the others differ from.
    for name in sorted(NAMES, key=lambda name: name not in WHOLE):
        file_of(name).write_text(snapshot(name), encoding="utf-8")
    print(f"written: {len(NAMES)} files in {FOLDER}")


if __name__ == "__main__":
    main()
