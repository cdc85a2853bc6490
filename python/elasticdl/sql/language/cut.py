"""Where statements end, and where in each the engine's own grammar ends.

Owns the only use of sqlglot: the tokenizer of each engine's dialect, which knows its
quotes, comments and escapes. Nothing is parsed, and no byte of a SELECT is changed:
what is handed on is a slice of the user's text. Called by `sql.clauses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elasticdl.job.spec.problems import nearest
from elasticdl.sql.problems import Problem, StatementError, position

# The product's name of an engine, and sqlglot's.
_DIALECTS = {"mariadb": "mysql", "postgresql": "postgres", "mssql": "tsql"}
_VERBS = ("TRAIN", "PREDICT", "EVALUATE", "EXPLAIN")
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
# Statements that may hold the words TO TRAIN and are the engine's: RENAME TO train.
_ENGINE = re.compile(
    "ALTER|ANALYZE|ATTACH|BEGIN|CALL|CHECKPOINT|COMMENT|COMMIT|COPY|CREATE|DEALLOCATE"
    "|DELETE|DESC|DESCRIBE|DETACH|DO|DROP|EXECUTE|EXPLAIN|EXPORT|FETCH|FLUSH|GRANT"
    "|IMPORT|INSERT|INSTALL|KILL|LOAD|LOCK|MERGE|OPTIMIZE|PRAGMA|PREPARE|REINDEX"
    "|RELEASE|RENAME|REPLACE|RESET|REVOKE|ROLLBACK|SAVEPOINT|SET|SHOW|START|SUMMARIZE"
    "|TRUNCATE|UNLOCK|UPDATE|USE|VACUUM"
)
_ASKING = ("DESC", "DESCRIBE", "EXPLAIN", "SHOW", "SUMMARIZE")
_CHANGING = ("DELETE", "INSERT", "MERGE", "UPDATE")
_BODIES = ("TRIGGER", "PROCEDURE", "FUNCTION", "EVENT")
_BLOCKS = ("IF", "LOOP", "WHILE", "REPEAT", "CASE", "FOR")  # Ended by END IF, ...
_OPEN, _CLOSE = "([{", ")]}"
# After these words `label x INTO y` is a table with an alias, not the LABEL clause.
_TABLE_COMES = ("FROM", "JOIN", "AS", ",", ".", "UPDATE", "INTO", "SELECT", "BY")


class Part(StrEnum):
    """What a statement is, by its tokens alone."""

    PLAIN = "plain"
    LABEL = "label"  # `SELECT ... LABEL x INTO y`
    TRAIN = "train"
    PREDICT = "predict"
    EVALUATE = "evaluate"
    EXPLAIN = "explain"


@dataclass(frozen=True)
class Token:
    """A token of the engine: its text as written and where it lies."""

    word: str  # Upper case for a bare word; "" for quoted ones and strings.
    begin: int
    end: int  # One behind its last character.


@dataclass(frozen=True)
class Cut:
    """One statement: `text[begin:select_end]` is the engine's, the rest ours.

    `clauses` is where our clauses begin: behind TO TRAIN, at the word LABEL in the
    original's form, and at the end of a plain statement.
    """

    part: Part
    begin: int
    select_end: int
    clauses: int
    end: int
    words: tuple[Token, ...]


def sqlglot_dialect(engine: str) -> str:
    """Return sqlglot's name of an engine's dialect; its base one if it has none."""
    from sqlglot.dialects.dialect import Dialect

    name = _DIALECTS.get(engine, engine)
    return name if Dialect.get(name) is not None else ""


def cut(text: str, engine: str) -> list[Cut]:
    """Return the statements of a text, in order, without empty ones."""
    ended, rest = _statements(tokenize(text, engine))
    pieces = _joined([*ended, rest] if rest else ended)
    return [_cut_one(tokens) for tokens in pieces]


def begun(text: str, engine: str) -> list[Token]:
    """Return the tokens of a statement that no semicolon ends yet.

    One in a quote, a comment or the body of a trigger is none of its end.
    """
    return _statements(tokenize(text, engine))[1]


def misspelt(one: Cut) -> tuple[Token, str] | None:
    """Return the word behind TO in a query that is nearly one of ours, and that one.

    No engine has TO in a query's own grammar but in SIMILAR TO and DAY TO HOUR.
    """
    query = one.words[0].word in _QUERIES
    if not query or one.part not in (Part.PLAIN, Part.LABEL):
        return None
    depth = 0
    for before, token, following in zip(
        one.words, one.words[1:], one.words[2:], strict=False
    ):
        depth += (token.word in (*_OPEN,)) - (token.word in (*_CLOSE,))
        if token.word == "TO" and before.word != "SIMILAR" and not depth:
            meant = nearest(following.word, _VERBS) if following.word else None
            if meant is not None:
                return following, meant
    return None


def changes(tokens: list[Token]) -> bool:
    """Whether a statement may be one that changes the engine's tables."""
    first = tokens[0].word
    if _ENGINE.fullmatch(first) and first not in _ASKING:
        return True
    return any(token.word in _CHANGING for token in tokens)  # as in WITH x AS (...)


def without_comments(text: str, engine: str) -> str:
    """Return a text with a blank in the place of each comment."""
    parts, end = [], 0
    for token in tokenize(text, engine):
        between = text[end : token.begin]
        parts.append(" " if between.strip() else between)
        parts.append(text[token.begin : token.end])
        end = token.end
    return "".join(parts)


def tokenize(text: str, engine: str) -> list[Token]:
    """Return the tokens of a text, by the engine's own rules of quotes."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import TokenError

    try:
        found = Dialect.get_or_raise(sqlglot_dialect(engine)).tokenize(text)
    except TokenError as error:
        raise StatementError(text, [_unfinished(text, error)]) from error
    tokens: list[Token] = []
    for token in found:
        end = token.end + 1
        # The rest of a statement that sqlglot does not look into has no begin.
        begin = max(min(token.start, end), tokens[-1].end if tokens else 0)
        tokens.extend(_words(text, begin, end, token))
    return tokens


def _words(text: str, begin: int, end: int, token: Any) -> Iterator[Token]:
    """Return one token, or one for each word of a keyword like SIMILAR TO."""
    written = text[begin:end]
    if written.upper() == token.text.upper() and token.token_type.name != "STRING":
        for match in re.finditer(r"\S+", written):
            yield Token(match[0].upper(), begin + match.start(), begin + match.end())
    else:
        yield Token("", begin, end)


def _unfinished(text: str, error: Any) -> Problem:
    """Return the mistake of a quote that never ends."""
    found = re.search(r"Missing (\S+) from \d+:(\d+)", str(error.__cause__ or error))
    if found is None:
        start = getattr(error, "start", None) or 0
        return Problem(position(text, start), "this cannot be read as SQL")
    quote, offset = found[1], int(found[2])
    return Problem(
        position(text, min(offset, max(0, len(text) - 1))),
        f"the quote that opens here has no end; expected another {quote}",
    )


def _statements(tokens: list[Token]) -> tuple[list[list[Token]], list[Token]]:
    """Cut at semicolons; return statements that one ends, and what is behind them.

    Those in the body of a trigger or routine do not end it.
    """
    ended: list[list[Token]] = []
    now: list[Token] = []
    depth = 0  # of BEGIN in a body
    for token in tokens:
        if token.word == ";" and not depth:
            if now:
                ended.append(now)
            now = []
            continue
        now.append(token)
        if now[0].word in ("CREATE", "BEGIN"):
            depth = _depth_of_body(now, depth)
    return ended, now


def _joined(pieces: list[list[Token]]) -> list[list[Token]]:
    """Put bodies together that have no BEGIN: CREATE PROCEDURE p() IF ... END IF.

    No statement begins with END IF: what does is the end of the routine before it.
    """
    found: list[list[Token]] = []
    body = 0  # Where the last routine is in `found`, plus one.
    for piece in pieces:
        words = [token.word for token in piece]
        if body and _ends_a_block(words):
            found[body - 1 :] = [[one for part in found[body - 1 :] for one in part]]
            found[-1] += piece
            continue
        found.append(piece)
        if words[0] == "CREATE" and any(word in _BODIES for word in words):
            body = len(found)
    return found


def _ends_a_block(words: list[str]) -> bool:
    return words[0] == "UNTIL" or (
        words[0] == "END" and len(words) > 1 and words[1] in _BLOCKS
    )


def _depth_of_body(now: list[Token], depth: int) -> int:
    """Return how many BEGIN are open: the END of IF, LOOP and the like ends none."""
    if [token.word for token in now] == ["BEGIN", "NOT", "ATOMIC"]:  # MariaDB's
        return 1
    before, last, word = (["", "", "", *(token.word for token in now)])[-3:]
    if word == "BEGIN":
        opens = depth or any(token.word in _BODIES for token in now)
        return depth + 1 if opens else 0
    if word == "END" and last in (";", "BEGIN"):
        return max(depth - 1, 0)
    if last == "END" and before == ";" and word in _BLOCKS:
        return depth + 1  # it was not the END of a BEGIN
    return depth


def _cut_one(tokens: list[Token]) -> Cut:
    begin, end = tokens[0].begin, tokens[-1].end
    at = None if _ENGINE.fullmatch(tokens[0].word) else _find(tokens)
    if at is None:
        return Cut(Part.PLAIN, begin, end, end, end, tuple(tokens))
    part = Part.LABEL
    clauses = tokens[at].begin
    if tokens[at].word == "TO":
        part = Part(tokens[at + 1].word.lower())
        clauses = tokens[at + 1].end
    select_end = tokens[at - 1].end if at else begin
    return Cut(part, begin, select_end, clauses, end, tuple(tokens))


def _find(tokens: list[Token]) -> int | None:
    """Return the number of the token where our clauses begin, or None."""
    depth = 0
    # TABLE employee is SELECT * FROM employee.
    from_seen = tokens[0].word == "TABLE" or tokens[0].word not in _QUERIES
    in_brackets = tokens[0].word == "("  # (SELECT ..) UNION (SELECT ..)
    label: int | None = None
    for i, token in enumerate(tokens):
        if token.word and token.word in _OPEN:
            depth += 1
        elif token.word and token.word in _CLOSE:
            depth -= 1
        elif depth and in_brackets:
            from_seen = from_seen or token.word == "FROM"
        elif depth == 0:
            following = tokens[i + 1].word if i + 1 < len(tokens) else ""
            if token.word == "TO" and following in _VERBS:
                return i
            from_seen = from_seen or token.word == "FROM"
            if label is None and from_seen and _is_label(tokens, i):
                label = i
    return label


def _is_label(tokens: list[Token], at: int) -> bool:
    """Whether `LABEL x INTO y` begins here: a name, then INTO, then nothing else.

    `SELECT a FROM label x INTO y` has a table of that name, and MySQL's
    `FROM t label INTO OUTFILE 'f'` no name in between.
    """
    if tokens[at].word != "LABEL" or (at and tokens[at - 1].word in _TABLE_COMES):
        return False
    into = next(
        (
            i
            for i in range(at + 2, min(at + 7, len(tokens)))
            if tokens[i].word == "INTO"
        ),
        None,
    )
    if into is None:
        return False
    between = tokens[at + 1 : into]
    dots = all(token.word == "." for token in between[1::2])
    return dots and len(between) % 2 == 1
