"""What a user's process and the steps beside the volume say to each other.

Owns both forms: a step's words on its command line, and the lines that it answers
with. Called by `flow` and `steps`. Holds no URL with a password, no environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from elasticdl.sql.problems import Problem, StatementError, position
from elasticdl.sql.running.session import Answer, Bars, Table, Told

PROGRAM = ("python", "-P", "-m", "elasticdl.cli.main")
_ANSWER = "elasticdl-answer: "
_PROBLEMS = "elasticdl-problems: "
_LAST_LINES = "its last lines: "


@dataclass(frozen=True)
class Step:
    """One step; `do` is a key of `steps.STEPS`.

    Attributes:
        do: What it does.
        statement: The statement that it is about.
        models: The registry's folder, from the data root.
        job: The job's name, which is also that of the folder it works in.
        db: Where the tables are, without a password; the environment's URL otherwise.
        overrides: The user's `path=value`.
        model: `name@2`, where the version is known already.
        metrics: Of the job's report, and the next two as well.
    """

    do: str
    statement: str
    models: str
    job: str = ""
    db: str = ""
    overrides: tuple[str, ...] = ()
    model: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    last_loss: float | None = None
    checkpoint: str = ""

    @property
    def words(self) -> list[str]:
        """The words behind `elasticdl`."""
        tree = {k: v for k, v in asdict(self).items() if v and k != "statement"}
        return ["sql", "--step", json.dumps(tree, sort_keys=True), self.statement]

    @property
    def command(self) -> list[str]:
        """The whole command line of `data.prepare`."""
        return [*PROGRAM, *self.words]


def read_step(text: str, statement: str) -> Step:
    """Return the step of its words."""
    tree = json.loads(text)
    overrides = tuple(tree.pop("overrides", ()))
    return Step(**tree, overrides=overrides, statement=statement)


def answer_line(value: dict[str, Any]) -> str:
    """Return a step's answer as the line that it prints."""
    return _ANSWER + json.dumps(value, default=str)


def read_answer(text: str) -> dict[str, Any]:
    """Return the answer that a step printed; {} if it printed none."""
    for line in reversed(text.splitlines()):
        if line.startswith(_ANSWER):
            found: dict[str, Any] = json.loads(line.removeprefix(_ANSWER))
            return found
    return {}


def to_tree(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Return answers as JSON has them."""
    return [{"kind": type(one).__name__, **asdict(one)} for one in answers]


def from_tree(trees: Sequence[dict[str, Any]]) -> list[Answer]:
    """Return answers that were written as JSON."""
    made: list[Answer] = []
    for tree in trees:
        match tree["kind"]:
            case "Table":
                rows = tuple(map(tuple, tree["rows"]))
                made.append(Table(tuple(tree["names"]), rows, tree["more"]))
            case "Bars":
                values = tuple((name, float(value)) for name, value in tree["values"])
                made.append(Bars(tree["title"], values))
            case _:
                made.append(Told(tuple(tree["lines"])))
    return made


def problems_line(problems: Iterable[Problem]) -> str:
    """Return mistakes in a statement as the line that a step prints."""
    told = [[one.at.offset, one.at.length, one.message] for one in problems]
    return _PROBLEMS + json.dumps(told)


def statement_error(said: str, text: str, begin: int) -> StatementError | None:
    """Return the mistakes that a step told of, with their places in the user's text.

    `begin` is where the step's statement begins in it.
    """
    found = re.search(re.escape(_PROBLEMS) + r"(\[\[.*\]\])", said)
    if found is None:
        return None
    try:
        told = json.loads(found[1])
    except ValueError:  # cut off on its way
        return None
    return StatementError(
        text,
        [
            Problem(position(text, begin + offset, length), message)
            for offset, length, message in told
        ],
    )


def reason(message: str) -> str:
    """Return a job's message; of a failed `data.prepare`, what the step itself said."""
    _, found, last = message.rpartition(_LAST_LINES)
    said = last.replace(" | ", "\n").splitlines() if found else message.splitlines()
    errors = [one for one in said if one.startswith("error: ")]
    return errors[-1].removeprefix("error: ") if errors else message
