"""The prompt of `elasticdl sql`: lines until a semicolon, history, completion.

Owns how text is asked for and when it is complete. Called by `cli.sql`, which shows the
answers. What statements do is in `sql.running`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from elasticdl.errors import ElasticDLError
from elasticdl.sql import signatures
from elasticdl.sql.attributes import FAMILIES
from elasticdl.sql.data.passwords import without_secret
from elasticdl.sql.data.stopping import Terminated
from elasticdl.sql.language import cut
from elasticdl.sql.models import MODELS, SYNONYMS
from elasticdl.sql.problems import StatementError
from elasticdl.sql.running.session import Answer, Session, Told
from elasticdl.sql.running.statements import read, run_one

_HISTORY = "~/.elasticdl/sql_history"
_LEAVE = ("exit", "quit", "\\q")
_HELP = (
    "A statement ends with ; and, unless it changes tables, with an empty line.",
    "Ctrl-C drops what was begun, exit or Ctrl-D leaves.",
    "  SELECT * FROM 'x.csv' LABEL y INTO m;                a model, all else chosen",
    "  SELECT ... TO TRAIN DNNClassifier WITH train.epoch = 5 COLUMN * LABEL y INTO m;",
    "  SELECT ... TO PREDICT [table] USING m;               to the screen, or a table",
    "  SELECT ... TO EVALUATE m;   SELECT ... TO EXPLAIN m;",
    "  SHOW MODELS;   DESCRIBE MODEL m;   SHOW TRAIN m;   DROP MODEL m;",
    "Everything else goes to the engine as it is.",
)
_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "TO TRAIN",
    "TO PREDICT", "TO EVALUATE", "TO EXPLAIN", "WITH", "COLUMN", "FOR", "LABEL",
    "USING", "INTO", "SHOW MODELS", "SHOW TRAIN", "DESCRIBE MODEL", "DROP MODEL",
    "PermutationImportance", "IntegratedGradients", "exit", "help",
    # A word that is begun ends at the space: these stand behind another one.
    "TRAIN", "PREDICT", "EVALUATE", "EXPLAIN", "MODEL", "MODELS", "BY",
)  # fmt: skip


def prompt(
    session: Session,
    show: Callable[[Answer], None],
    *,
    history: Path | None = None,
    io: dict[str, Any] | None = None,
) -> int:
    """Ask for statements and run them until the end of input; the exit code.

    `io` are arguments of the asking library, as its input and output.
    """
    asking = _asking(session, history or Path(_HISTORY).expanduser(), io or {})
    show(Told((f"{session.source.engine}; help; says what there is, exit; leaves",)))
    while True:
        text = _text(asking)
        if text is None:
            return 0
        word = text.strip().rstrip(";").strip().lower()
        if word in _LEAVE:
            return 0
        if word in ("help", "\\h", "?"):
            show(Told(_HELP))
        elif word:
            for answer in run_text(session, text):
                show(answer)


def _text(asking: Any) -> str | None:
    """Return what was typed; None at the end of input."""
    try:
        return str(asking.prompt())
    except Terminated:
        raise
    except KeyboardInterrupt:
        return ""  # Ctrl-C drops the line, as in a shell.
    except EOFError:
        return None


def run_text(session: Session, text: str) -> Iterator[Answer]:
    """Run statements; a mistake is an answer too, and the prompt goes on."""
    try:
        for statement in read(session, text):
            yield from run_one(session, statement, text)
    except (ElasticDLError, OSError) as error:  # as of a disk that is full
        yield Told((f"error: {error}",))
    except Terminated:
        raise
    except KeyboardInterrupt:
        yield Told(("stopped",))


def complete(text: str, engine: str) -> bool:
    """Whether Enter behind this text runs it.

    An empty line ends nothing that may change tables: `DELETE FROM t` would be run
    without the WHERE that comes behind it.
    """
    if text.strip().lower() in (*_LEAVE, "help", "\\h", "?"):
        return True
    is_empty_line = text.endswith("\n")
    try:
        rest = cut.begun(text, engine)
    except StatementError:  # A quote or comment is open; who forgot its end is told.
        return is_empty_line
    return not rest or (is_empty_line and not cut.changes(rest))


def suggestions(word: str, models: Iterable[str]) -> list[str]:
    """Return what a word that was begun may become."""
    if not word:
        return []
    attributes = [name for names in FAMILIES.values() for name in names]
    known = [*_WORDS, *signatures.SIGNATURES, *MODELS, *SYNONYMS, *attributes, *models]
    found = (one for one in known if one.lower().startswith(word.lower()))
    return list(dict.fromkeys(found))


def _asking(session: Session, history: Path, io: dict[str, Any]) -> Any:
    """Return the library's session: it keeps history and completes words."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings

    class Words(Completer):
        def get_completions(self, document: Any, _: Any) -> Iterator[Completion]:
            word = document.get_word_before_cursor(WORD=True)
            word = word.rpartition("(")[2].rpartition("[")[2].rpartition(",")[2]
            for one in suggestions(word, _models(session)):
                yield Completion(one, start_position=-len(word))

    class Lines(FileHistory):
        def store_string(self, string: str) -> None:
            super().store_string(without_secret(string))

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if complete(buffer.text, session.source.engine):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    kept: Any = InMemoryHistory()
    with contextlib.suppress(OSError):  # a home that cannot be written keeps none
        history.parent.mkdir(parents=True, exist_ok=True)
        kept = Lines(str(history))
    return PromptSession(
        "sql> ",
        multiline=True,
        prompt_continuation="...> ",
        completer=Words(),
        complete_while_typing=False,
        history=kept,
        key_bindings=keys,
        **io,
    )


def _models(session: Session) -> list[str]:
    return [version.reference for version in session.registry.all()]
