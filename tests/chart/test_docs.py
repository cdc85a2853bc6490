"""docs/kubernetes.md says what the chart renders and what the command line takes."""

import re
import shlex

import pytest
from elasticdl.cli.main import make_parser
from elasticdl.cli.options import flags
from elasticdl.master.live_edits import LIVE

from tests.chart.rendering import ROOT, example, objects, of_kind

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
README = (ROOT / "README.md").read_text()


def section(title):
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.M)[0]


def table(text, first_head):
    """Return the cells of the rows of the table whose first head this is."""
    rows = f"\n{text}".split(f"\n| {first_head} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def commands():
    """Return the words of each `elasticdl` command in a block of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE + README, flags=re.M | re.S)
    text = "\n".join(blocks).replace("\\\n", " ")
    lines = [line.partition(" | ")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line.startswith("elasticdl ")]


def test_each_right_of_a_master_is_listed_with_its_reason_and_no_other():
    listed, resource = set(), ""
    for named, verbs, reason in table(section("Permissions"), "resource"):
        resource = named or resource
        assert reason
        listed |= {(resource, verb) for verb in verbs.split(", ")}
    assert listed == {
        (resource, verb)
        for rule in of_kind(objects(), "Role")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_each_object_that_helm_makes_is_listed():
    made = {*objects(), *objects(example("digits"))}
    listed = {
        (kind.partition(" ")[0], name)
        for kinds, names, maker, *_ in table(section("What is made"), "object")
        if maker == "Helm"
        for kind in kinds.split(", ")
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert made == {(kind, name.replace("<job>", "digits")) for kind, name in listed}


def test_each_field_that_may_change_is_listed():
    listed = {
        name.removesuffix(".*")
        for names, _ in table(section("Changing a running job"), "field")
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert listed == set(LIVE)


@pytest.mark.parametrize("command", commands())
def test_the_command_line_takes_each_command(command):
    words = shlex.split(command.replace("JOB", "digits"), comments=True)
    assert flags.parse(make_parser(), words[1:])


def test_the_claims_of_the_quick_starts_are_taken():
    texts = re.findall(r"--set '(claims[^']+)'", PAGE + README)
    assert texts
    for text in texts:
        pairs = dict(pair.split("=") for pair in text.split(","))
        claim = {
            key.removeprefix("claims[0]."): {"true": True}.get(value, value)
            for key, value in pairs.items()
        }
        made = objects({"claims": [claim]})
        kinds = {kind for kind, _ in made}
        assert ("PersistentVolumeClaim" in kinds) != ("existing" in claim)


def test_no_page_reuses_values_as_an_older_chart_had_them():
    """A section that is new in the chart would be missing in them."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "gitops").rglob("*.md")]
    pages += [ROOT / "README.md", ROOT / "charts" / "elasticdl" / "README.md"]
    for page in pages:
        assert not re.search(r"--reuse-values\b", page.read_text()), page
