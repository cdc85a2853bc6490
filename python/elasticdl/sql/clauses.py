"""Statements from text: the clauses behind a SELECT, read by recursive descent.

Owns the grammar of TO TRAIN, PREDICT, EVALUATE and EXPLAIN, of the original's
`LABEL x INTO y`, and of SHOW, DESCRIBE and DROP MODEL. Clauses come in any order. A
mistake in one clause does not hide those in the others. Called by `sql.language`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elasticdl.job.spec.problems import did_you_mean, nearest
from elasticdl.sql.language import cut as cutting
from elasticdl.sql.language.cut import Cut, Part
from elasticdl.sql.language.expressions import Failed, Reader
from elasticdl.sql.language.lexing import Sort, Token
from elasticdl.sql.problems import Problem, StatementError
from elasticdl.sql.statements import (
    Attribute,
    ColumnClause,
    DescribeModel,
    DropModel,
    Evaluate,
    Explain,
    Explainer,
    Name,
    Plain,
    Predict,
    ShowModels,
    ShowTrain,
    Statement,
    Train,
)

_ALLOWED = {
    Part.LABEL: ("WITH", "COLUMN", "LABEL", "INTO"),
    Part.TRAIN: ("WITH", "COLUMN", "LABEL", "INTO"),
    Part.PREDICT: ("WITH", "USING"),
    Part.EVALUATE: ("WITH", "LABEL", "INTO"),
    Part.EXPLAIN: ("WITH", "LABEL", "USING", "INTO"),
}
_ELSEWHERE = {
    (Part.TRAIN, "USING"): "TRAIN begins from fresh weights; to begin from others, "
    "write WITH job.checkpoint.initFrom = '...'",
    (Part.PREDICT, "INTO"): "the table comes right behind TO PREDICT",
    (Part.PREDICT, "LABEL"): "PREDICT needs no label; take it out",
    (Part.EVALUATE, "USING"): "the model comes right behind TO EVALUATE",
    (Part.EVALUATE, "COLUMN"): "a model's columns are those that it was trained with",
    (Part.PREDICT, "COLUMN"): "a model's columns are those that it was trained with",
    (Part.EXPLAIN, "COLUMN"): "a model's columns are those that it was trained with",
}

_LOWER = ("postgresql", "cockroachdb", "redshift")


def parse(text: str, engine: str) -> list[Statement]:
    """Return the statements of a text; StatementError has all mistakes in it."""
    statements, problems = parsed(text, engine)
    if problems:
        raise StatementError(text, problems)
    return [one for one in statements if one is not None]


def parsed(text: str, engine: str) -> tuple[list[Statement | None], list[Problem]]:
    """Return the statements of a text, None for one with mistakes, and all of these."""
    problems: list[Problem] = []
    statements: list[Statement | None] = []
    for one in cutting.cut(text, engine):
        parser = _Statement(text, engine, one)
        statements.append(parser.parse())
        problems += parser.problems
    return statements, problems


class _Statement:
    """One statement: its clauses, collected one by one."""

    def __init__(self, text: str, engine: str, one: Cut) -> None:
        backslashes = cutting.sqlglot_dialect(engine) == "mysql"
        begin = one.begin if one.part is Part.PLAIN else one.clauses
        self._cut = one
        # How it reads a table's name without quotes.
        self._folded = str.lower if engine in _LOWER else str
        self._reader = Reader(text, begin, one.end, backslashes=backslashes)
        self._whole = text[one.begin : one.end]
        self._select = text[one.begin : one.select_end]
        self.problems: list[Problem] = []
        self._places: dict[str, Token] = {}
        self._with: list[Attribute] = []
        self._columns: list[ColumnClause] = []
        self._names: dict[str, Name] = {}

    def parse(self) -> Statement | None:
        """Return the statement, or None where `problems` says why there is none."""
        at = self._reader.at(self._cut.begin, 1)
        if (slip := cutting.misspelt(self._cut)) is not None:
            token, meant = slip
            place = self._reader.at(token.begin, len(token.word))
            said = f"`TO {token.word}`: did you mean `TO {meant}`?"
            self.problems.append(Problem(place, said))
            return None
        if self._cut.part is Part.PLAIN:
            try:
                return self._about_models()
            except Failed as failed:
                self.problems.append(failed.problem)
                return None
        if not self._select.strip():
            self.problems.append(Problem(at, "a SELECT is missing before this"))
        head = self._guarded(self._head)
        while self._reader.now.sort is not Sort.END:
            self._guarded(self._clause)
        statement = self._made(head)
        return None if self.problems else statement

    def _guarded(self, read: Callable[[], Name | None]) -> Name | None:
        """Read one clause; after a mistake go on with the next one."""
        began = self._reader.num_read
        try:
            return read()
        except Failed as failed:
            self.problems.append(failed.problem)
            self._reader.skip_clause(began)
            return None

    def _head(self) -> Name | None:
        """Read what stands right behind TO TRAIN and the like."""
        part = self._cut.part
        reader = self._reader
        if part is Part.LABEL or (part is Part.PREDICT and reader.at_clause()):
            return None
        what = {
            Part.TRAIN: "the model, as TO TRAIN DNNClassifier",
            Part.PREDICT: "the table, or USING",
            Part.EVALUATE: "the model's name",
            Part.EXPLAIN: "the model's name",
        }[part]
        if reader.at_clause() or reader.now.sort is Sort.END:
            raise reader.failed(f"expected {what}")
        if part is Part.PREDICT:
            return reader.table_name(what, self._folded)
        return reader.long_name(what)

    def _clause(self) -> None:
        reader, part = self._reader, self._cut.part
        token = reader.now
        word = token.word
        if word not in _ALLOWED[part]:
            raise reader.failed(self._no_clause(token))
        if word in self._places and word != "COLUMN":
            raise reader.failed(f"{word} is there twice; expected one {word}", token)
        self._places[word] = token
        reader.next()
        if word == "WITH":
            self._with += reader.attributes()
        elif word == "COLUMN":
            self._columns.append(self._column_clause(token))
        elif word == "LABEL":
            self._names[word] = reader.column_name("the label's column")
        else:
            what = {
                "INTO": "the name of the model"
                if part in (Part.TRAIN, Part.LABEL)
                else "the name of a table",
                "USING": "PermutationImportance or IntegratedGradients"
                if part is Part.EXPLAIN
                else "the name of the model",
            }[word]
            if word == "INTO" and part not in (Part.TRAIN, Part.LABEL):
                self._names[word] = reader.table_name(what, self._folded)
            else:
                self._names[word] = reader.long_name(what)

    def _no_clause(self, token: Token) -> str:
        part = self._cut.part
        hint = _ELSEWHERE.get((part, token.word))
        if hint:
            return f"no {token.word} here; {hint}"
        allowed = ", ".join(_ALLOWED[part])
        if token.sort is Sort.WORD and nearest(token.text, _ALLOWED[part]):
            hint = did_you_mean(token.text, _ALLOWED[part])
            return f"`{token.text}` begins no clause; {hint}"
        return f"expected {allowed} or the end, got `{token.text}`"

    def _column_clause(self, token: Token) -> ColumnClause:
        entries = self._reader.entries()
        group = None
        if self._reader.now.word == "FOR":
            self._reader.next()
            group = self._reader.column_name("a group of columns")
            if self._reader.now.text == ",":
                raise self._reader.failed(
                    "FOR ends the columns of a group; begin the next ones with COLUMN"
                )
        at = self._reader.at(token.begin, token.end - token.begin)
        return ColumnClause(tuple(entries), group, at)

    def _made(self, head: Name | None) -> Statement | None:
        """Return the statement of its clauses; notes what is missing."""
        part = self._cut.part
        at = self._reader.at(self._cut.begin, 1)
        with_, whole, names = tuple(self._with), self._whole, self._names
        if part in (Part.TRAIN, Part.LABEL):
            into = names.get("INTO")
            if into is None:
                self._missing("INTO", "INTO and the model's name")
                return None
            return Train(
                self._select, head, with_, tuple(self._columns), names.get("LABEL"),
                into, at, whole,
            )  # fmt: skip
        if part is Part.PREDICT:
            using = names.get("USING")
            if using is None:
                self._missing("USING", "USING and the model's name")
                return None
            table, column = _table_and_column(head)
            return Predict(self._select, using, with_, table, column, at, whole)
        if head is None:
            return None
        label, into = names.get("LABEL"), names.get("INTO")
        if part is Part.EVALUATE:
            return Evaluate(self._select, head, with_, label, into, at, whole)
        explainer = self._explainer(names.get("USING"))
        return Explain(self._select, head, with_, explainer, label, into, at, whole)

    def _missing(self, word: str, what: str) -> None:
        ended = any("the statement ends here" in p.message for p in self.problems)
        if word not in self._places and not ended:
            end = self._reader.at(max(self._cut.end - 1, 0), 1)
            self.problems.append(Problem(end, f"the end is too early; expected {what}"))

    def _explainer(self, using: Name | None) -> Explainer:
        if using is None:
            return Explainer.PERMUTATION
        for known in Explainer:
            if known.lower() == using.text.lower():
                return known
        hint = did_you_mean(using.text, list(Explainer))
        self.problems.append(
            Problem(using.at, f"`{using.text}` explains no model; {hint}")
        )
        return Explainer.PERMUTATION

    def _about_models(self) -> Statement:
        """Return a statement about models, or the engine's own one."""
        reader = self._reader
        at = reader.at(self._cut.begin, 1)
        words = [token.word for token in self._cut.words[:1]]
        words += [token.word for token in reader.ahead(1, 3)]
        if words[:2] == ["SHOW", "MODELS"]:
            reader.next(2)
            self._finished()
            return ShowModels(at, self._whole)
        if words[:2] == ["SHOW", "TRAIN"]:
            return ShowTrain(self._model(2), at, self._whole)
        # A table may be called model; DESCRIBE model alone asks for it.
        named = reader.ahead(2, 1)[0].sort is not Sort.END
        if words[0] in ("DESCRIBE", "DESC") and words[1] == "MODEL" and named:
            return DescribeModel(self._model(2), at, self._whole)
        if words[:2] == ["DROP", "MODEL"]:
            if_exists = words[2:4] == ["IF", "EXISTS"]
            return DropModel(self._model(4 if if_exists else 2), if_exists, at,
                             self._whole)  # fmt: skip
        return Plain(self._whole, at, self._whole)

    def _model(self, skip: int) -> Name:
        self._reader.next(skip)
        name = self._reader.long_name("the model's name")
        self._finished()
        return name

    def _finished(self) -> None:
        if self._reader.now.sort is not Sort.END:
            raise self._reader.failed(
                f"expected the end, got `{self._reader.now.text}`"
            )


def _table_and_column(name: Name | None) -> tuple[Name | None, Name | None]:
    """Return `table.column` in its parts: the last of two or three is the column."""
    if name is None or name.quoted or "." not in name.text:
        return name, None
    table, _, column = name.text.rpartition(".")
    return Name(table, name.at), Name(column, name.at)


def names_in(statement: Statement) -> Iterator[Name]:
    """Return the names of models and tables that a statement mentions."""
    for value in vars(statement).values():
        if isinstance(value, Name):
            yield value
