"""Claims about the prompt and about statements in Python."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import elasticdl
import pytest
from elasticdl.errors import DataError, SpecError
from elasticdl.sql import notebook, prompt
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Answer, Session, Table, Told


def _no_job(values: Any) -> Any:
    raise AssertionError("no job runs here")


def _asked(tmp_path: Path, text: str) -> list[Answer]:
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    source = open_source("")
    shown: list[Answer] = []
    try:
        session = Session(source, Registry(tmp_path / "models"), _no_job, print)
        with create_pipe_input() as keys:
            keys.send_text(text)
            code = prompt.prompt(
                session,
                shown.append,
                history=tmp_path / "history",
                io={"input": keys, "output": DummyOutput()},
            )
    finally:
        source.close()
    assert code == 0
    return shown[1:]


def test_a_statement_runs_at_its_semicolon_and_exit_leaves(tmp_path: Path) -> None:
    (answer,) = _asked(tmp_path, "SELECT 1 AS a,\r2 AS b;\rexit\r")
    assert isinstance(answer, Table)
    assert answer.names == ("a", "b")
    assert "SELECT 1 AS a," in (tmp_path / "history").read_text(encoding="utf-8")


def test_no_password_is_kept_in_the_history(tmp_path: Path) -> None:
    (answer,) = _asked(tmp_path, "SELECT 'x://u:p@ s w@h' AS a;\rexit\r")
    assert isinstance(answer, Table)
    assert answer.rows == (("x://u:p@ s w@h",),)
    kept = (tmp_path / "history").read_text(encoding="utf-8")
    assert "SELECT 'x://u:***@h' AS a;" in kept


def test_an_empty_line_ends_a_statement_too(tmp_path: Path) -> None:
    (answer,) = _asked(tmp_path, "SELECT 1 AS a\r\rexit\r")
    assert isinstance(answer, Table)


_TWO_ROWS = "CREATE TABLE t AS SELECT * FROM range(2) AS r(i);\r"


@pytest.mark.parametrize(
    "typed",
    [
        "DELETE FROM t -- all but the first;\rWHERE i > 0;\r",
        "DELETE FROM t /* all but the first;\r */ WHERE i > 0;\r",
        "DELETE FROM t\r\rWHERE i > 0;\r",
        "WITH x AS (SELECT 0 AS a)\r\rDELETE FROM t\r\rWHERE i > 0;\r",
    ],
)
def test_no_table_is_changed_by_a_statement_that_is_half_typed(
    typed: str, tmp_path: Path
) -> None:
    """All rows were deleted, and the WHERE behind was a mistake of its own."""
    *_, answer = _asked(tmp_path, f"{_TWO_ROWS}{typed}SELECT i FROM t;\rexit\r")
    assert isinstance(answer, Table)
    assert answer.rows == ((0,),)


def test_a_semicolon_in_a_text_ends_no_line(tmp_path: Path) -> None:
    typed = "SELECT 'a;\rb' AS a; -- one\rexit\r"
    (answer,) = _asked(tmp_path, typed)
    assert isinstance(answer, Table)
    assert answer.rows == (("a;\nb",),)


def test_a_text_without_end_is_told_at_an_empty_line(tmp_path: Path) -> None:
    (answer,) = _asked(tmp_path, "SELECT * FROM 'a.csv;\r\rexit\r")
    assert isinstance(answer, Told)
    assert "the quote that opens here has no end" in answer.lines[0]


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("CREATE TRIGGER x AFTER INSERT ON t BEGIN\n  DELETE FROM a;", False),
        ("CREATE TRIGGER x AFTER INSERT ON t BEGIN\n  DELETE FROM a;\nEND;", True),
        ("BEGIN;", True),
        ("DROP MODEL m\n", False),
        ("SHOW MODELS\n", True),
        ("-- a remark", True),
        ("?", True),
    ],
)
def test_where_enter_runs_what_was_typed(text: str, ended: bool) -> None:
    assert prompt.complete(text, "sqlite") is ended


def test_a_mistake_is_an_answer_and_the_prompt_goes_on(tmp_path: Path) -> None:
    wrong, right = _asked(tmp_path, "SELECT 1 TO TRAIN;\rSELECT 2 AS b;\rexit\r")
    assert isinstance(wrong, Told)
    assert "line 1, column 17" in wrong.lines[0]
    assert isinstance(right, Table)


def test_words_are_completed() -> None:
    assert "EMBEDDING" in prompt.suggestions("emb", ())
    assert "DeepFMClassifier" in prompt.suggestions("DeepFM", ())
    assert "validation.fraction" in prompt.suggestions("validation.f", ())
    assert prompt.suggestions("inc", ["income@1"]) == ["income@1"]
    assert prompt.suggestions("", ["income@1"]) == []
    assert "PREDICT" in prompt.suggestions("PRED", [])  # of TO PREDICT


def test_the_package_is_a_function_in_python(tmp_path: Path) -> None:
    call: Any = elasticdl.sql  # a package that can be called
    found = call("SELECT 1 AS a, 'x<y' AS b", models_dir=tmp_path, environ={})
    assert found.columns == ("a", "b")
    assert found.rows == ((1, "x<y"),)
    assert "<td>x&lt;y</td>" in found._repr_html_()
    assert repr(found) == "a\tb\n1\tx<y"


class Shell:
    """What a notebook's shell does with a magic: `$x` and `{x}` become variables."""

    def __init__(self, **variables: str) -> None:
        self._variables = variables
        self._magics: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        assert kind == "line_cell"
        self._magics[name] = function

    def var_expand(self, text: str) -> str:
        for name, value in self._variables.items():
            text = text.replace(f"{{{name}}}", value).replace(f"${name}", value)
        return text

    def run(self, line: str, *cell: str) -> Any:
        magic = self._magics["elasticdl"]
        as_it_is = getattr(magic, "_ipython_magic_no_var_expand", False)
        return magic(line if as_it_is else self.var_expand(line), *cell)


def test_the_cell_magic_takes_a_database(tmp_path: Path) -> None:
    shell = Shell(db=str(tmp_path / "t.duckdb"))
    notebook.load_ipython_extension(shell)
    line = f"--db {{db}} --models-dir {tmp_path}"
    shell.run(line, "CREATE TABLE t AS SELECT 7 AS a")
    assert shell.run(line, "SELECT a FROM t").rows == ((7,),)


# As the engine looks for a notebook: no file of the program, a shell with a kernel.
_KERNEL = """
class _Shell:
    config = {"IPKernelApp": {}}


def get_ipython():
    return _Shell()
"""


def test_a_notebook_without_widgets_gets_answers(tmp_path: Path) -> None:
    (tmp_path / "IPython.py").write_text(_KERNEL)
    (tmp_path / "ipywidgets.py").write_text("raise ImportError('not installed')")
    program = "import IPython, elasticdl\nprint(elasticdl.sql('SELECT 7 AS a').rows)"
    search = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "((7,),)\n", done.stderr


@pytest.mark.parametrize("in_cell", [False, True])
def test_no_sign_of_a_statement_is_the_notebooks(in_cell: bool, tmp_path: Path) -> None:
    """On a line `$HOME` and `{x}` in quotes became variables of the notebook."""
    shell = Shell(x="5", HOME="home")
    notebook.load_ipython_extension(shell)
    texts = ("$HOME", "{x}", "{{x}}", "it's", "\\n", "%s %%", '"', "${x}")
    listed = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
    select = f'SELECT {listed}, $$a {{x}}$$, "q" FROM (SELECT 1 AS "q")'
    given = ("", select) if in_cell else (select,)
    assert shell.run(*given).rows == ((*texts, "a {x}", 1),)


def test_options_on_the_line_of_a_statement_are_no_comment_of_it() -> None:
    shell = Shell()
    elasticdl.load_ipython_extension(shell)
    with pytest.raises(SpecError, match="write them behind %%elasticdl"):
        shell.run("--models-dir m SHOW MODELS")


def test_a_notebook_shows_a_mistake_and_not_the_calls_that_found_it() -> None:
    shell = Shell()
    elasticdl.load_ipython_extension(shell)
    with pytest.raises(SpecError) as caught:
        shell.run("", "SELECT 1 AS a TO TRAIM DNNClassifier LABEL a INTO m")
    # As IPython asks for what it shows.
    (shown,) = getattr(caught.value, "_render_traceback_")()  # noqa: B009
    assert shown.startswith("error: line 1, column 18: `TO TRAIM`: did you mean")


def test_answers_before_a_statement_that_fails_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a PREDICT of an hour were gone with the error."""
    with pytest.raises(DataError, match="nowhere"):
        notebook.sql("SELECT 7 AS a; FROM nowhere", models_dir=tmp_path, environ={})
    assert capsys.readouterr().out == "a\n7\n"


def test_a_database_is_a_url_or_a_file_in_python(tmp_path: Path) -> None:
    """A path, or a connection, ended in an AttributeError."""
    file = tmp_path / "t.duckdb"
    for text in ("CREATE TABLE t AS SELECT 7 AS a", "SELECT a FROM t"):
        found = notebook.sql(text, db=file, models_dir=tmp_path, environ={})
    assert found.rows == ((7,),)
    held: Any = duckdb.connect()
    with pytest.raises(SpecError, match=r"got a DuckDBPyConnection.*to_parquet"):
        notebook.sql("SELECT 1", db=held, environ={})


def test_a_wrong_statement_raises_in_python(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean `DNNClassifier`"):
        notebook.sql(
            "SELECT 1 AS a TO TRAIN DNNClasifier LABEL a INTO m",
            models_dir=tmp_path,
            environ={},
        )


def test_a_servers_columns_are_checked_with_wrong_words(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS age, 'x' AS income")
    with pytest.raises(SpecError) as caught:
        notebook.sql(
            "SELECT * FROM t TO TRAIN DNNClasifier COLUMN agee LABEL incom INTO m",
            db=str(tmp_path / "t.sqlite"),
            models_dir=tmp_path,
            environ={},
        )
    told = str(caught.value)
    assert "did you mean `DNNClassifier`" in told
    assert "did you mean `age`" in told
    assert "did you mean `income`" in told


def test_a_clause_before_label_is_explained_where_the_engine_refuses_it(
    tmp_path: Path,
) -> None:
    text = "SELECT * FROM range(9) AS t(a) WITH train.epoch = 3 LABEL a INTO m"
    said = r"WITH before LABEL .*TO TRAIN DNNClassifier"
    with pytest.raises(DataError, match=said):
        notebook.sql(text, models_dir=tmp_path, environ={})


def test_statements_for_a_cluster_keep_passwords_out_of_values(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a URL with a password"):
        notebook.sql("SELECT 1", db="mysql://me:pw@shop/db", namespace="ml", environ={})
    url = {"ELASTICDL_SQL_URL": "mysql://me:pw@shop/db"}
    with pytest.raises(SpecError, match="pods do not see it"):
        notebook.sql("SELECT 1", namespace="ml", environ=url)
    with pytest.raises(SpecError, match="secret: got one without a namespace"):
        notebook.sql("SELECT 1", secret="shop", environ={})
    with pytest.raises(SpecError, match="jobs_dir"):
        notebook.sql("SELECT 1", namespace="ml", jobs_dir=tmp_path, environ={})


def test_python_gets_all_rows_of_an_answer_and_shows_the_first(tmp_path: Path) -> None:
    """There were 40, as many as fit a screen, without a word."""
    found = notebook.sql("SELECT * FROM range(1000)", models_dir=tmp_path, environ={})
    assert found.rows == tuple((i,) for i in range(1000))
    assert not found.more
    assert repr(found).endswith("\n39\n...")
    assert found._repr_html_().count("<tr>") == 41


@pytest.mark.parametrize("line", ["--bd x", "--db 'x", "shop.db", "--db"])
def test_a_wrong_option_of_the_magic_raises_and_ends_nothing(line: str) -> None:
    with pytest.raises(SpecError, match=r"%%elasticdl"):
        notebook.magic(line, "SELECT 1")


def test_the_prompt_outlives_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    text = "SELECT i AS a, i % 2 AS y FROM range(9) t(i) LABEL y INTO m;\rSELECT 1;\r"
    error, answer = _asked(tmp_path, f"{text}exit\r")
    assert isinstance(error, Told)
    assert error.lines[0].startswith("error: ")
    assert isinstance(answer, Table)
