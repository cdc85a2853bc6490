"""The words that roles say to each other are in `job.words`, and nowhere else."""

import ast
import enum
from collections.abc import Iterator
from pathlib import Path

import elasticdl
import pytest
from elasticdl.job import words
from elasticdl.job.words import EndCause, ExitReason, end_cause, end_cause_of

PACKAGE = Path(elasticdl.__file__).parent
WORDS = {
    str(word)
    for kind in vars(words).values()
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum)
    for word in kind
    if word
}
# Words that mean something else there: a kind of note in the journal, the argument of a
# Keras layer, the parameter of a user's function.
ELSEWHERE = {
    "master/tasks/audit.py": {"state"},
    "model/building.py": {"training"},
    "model/user_code.py": {"prediction"},
}


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each bare string that something is compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                parts = side.elts if isinstance(side, ast.Tuple | ast.Set) else [side]
                for part in parts:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield node.lineno, part.value
        if isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def test_no_module_compares_with_a_bare_word() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if place == "job/words.py" or "_pb2" in place:
            continue
        tree = ast.parse(file.read_text())
        others = ELSEWHERE.get(place, set())
        found += [
            f"{place}:{line}: {text!r}"
            for line, text in compared(tree)
            if text in WORDS and text not in others
        ]
    assert not found, "compare with a member of job.words instead:\n" + "\n".join(found)


def test_the_search_finds_each_way_to_compare_with_a_bare_word() -> None:
    code = (
        "a == 'hung'\n'hung' != a\na in ('x', 'hung')\nmatch a:\n case 'hung':\n  pass"
    )
    assert [text for _, text in compared(ast.parse(code))].count("hung") == 4


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("exit code 137", EndCause.CRASHED),
        ("stopped from outside", EndCause.DELETED),
        ("preempted", EndCause.PREEMPTED),
        ("hung", EndCause.HUNG),
        ("fenced", EndCause.FENCED),
        ("gone", EndCause.OTHER),
    ],
)
def test_the_reason_that_an_earlier_version_wrote_is_understood(
    reason: str, cause: EndCause
) -> None:
    assert end_cause_of(reason) is cause


def test_each_reason_of_a_platform_has_a_cause() -> None:
    assert {end_cause(reason) for reason in ExitReason} <= set(EndCause)
    assert end_cause(ExitReason.ERROR) is EndCause.CRASHED
