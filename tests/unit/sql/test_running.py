"""Claims about what statements do with rows before and after their job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError, JobError, SpecError
from elasticdl.job.values.checking import validate
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values
from elasticdl.sql.data import results, shards
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import (
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Measured,
    ModelPlan,
    Schema,
    SplitPlan,
    Stored,
    TrainPlan,
)
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import (
    Description,
    Registry,
    write_description,
)
from elasticdl.sql.running import evaluate, explain, gradients, predict
from elasticdl.sql.running.questions import parts_of
from elasticdl.sql.running.session import Bars, Session
from elasticdl.sql.running.staging import stage
from elasticdl.sql.running.statements import run
from elasticdl.sql.running.train import few_steps, keep

from tests.unit.sql.ready import read, train

_TWO = "SELECT 1 AS x, 2 AS X, 1 AS y"


def _values() -> ValuesFile:
    model = {"definition": "m.f", "files": {"m.py": ""}}
    job = {"name": "m", "model": model, "data": {"training": "rows"}}
    return validate({"kind": "job", "job": job})


def _about(*columns: str) -> Description:
    plans = tuple(ColumnPlan(one, one, Stored.FLOAT) for one in columns)
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    return Description(plans, label, Schema(()), "DNNClassifier")


def test_two_columns_of_one_name_are_refused_in_every_statement(
    session: Session, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="two columns `X`; name one of them with AS"):
        stage(session, _TWO, _about("x"), tmp_path)
    text = (
        "SELECT i AS x, i % 2 AS y FROM range(9) t(i) TO TRAIN DNNClassifier "
        f"WITH validation.select = '{_TWO}' LABEL y INTO m"
    )
    with pytest.raises(SpecError, match=r"validation\.select: the query has two"):
        train(session, text, tmp_path)


def test_a_column_that_the_validation_rows_lack_is_named(
    session: Session, tmp_path: Path
) -> None:
    text = (
        "SELECT i AS x, i % 2 AS y FROM range(9) t(i) TO TRAIN DNNClassifier "
        "WITH validation.select = 'SELECT 1 AS z' LABEL y INTO m"
    )
    with pytest.raises(SpecError, match=r"no column `x`, which.*no column `y`"):
        train(session, text, tmp_path)


@pytest.mark.parametrize("select", ["SELECT 1 AS x FROM nowhere", "SELECT 1 AS z"])
def test_mistakes_of_validation_select_have_a_caret_before_rows_areread(
    session: Session, tmp_path: Path, select: str
) -> None:
    text = (
        "SELECT i AS x, i % 2 AS y FROM range(9) t(i) TO TRAIN DNNClassifier "
        f"WITH validation.select = '{select}' LABEL y INTO m"
    )
    with pytest.raises(StatementError) as caught:
        train(session, text, tmp_path)
    (problem,) = caught.value.problems
    assert text[problem.at.offset :].startswith(f"'{select}'")
    assert not list(tmp_path.rglob("rows.parquet"))


def test_validation_rows_of_another_kind_are_refused(
    session: Session, tmp_path: Path
) -> None:
    text = (
        "SELECT 'a' || i % 3 AS x, i % 2 AS y FROM range(90) t(i) TO TRAIN "
        "DNNClassifier WITH validation.select = 'SELECT 1 AS x, true AS y' "
        "LABEL y INTO m"
    )
    told = r"validation\.select: column `x` is integer .*trained with text; CAST"
    with pytest.raises(SpecError, match=told):
        train(session, text, tmp_path)


def test_a_dot_in_a_columns_name_is_a_part_of_it(
    session: Session, tmp_path: Path
) -> None:
    select = "SELECT {'b': 5} AS a, i AS \"a.b\", i % 2 AS y FROM range(300) t(i)"
    staged = stage(session, select, _about("a.b"), tmp_path)
    made = shards.write_training(
        staged,
        tmp_path / "shards",
        columns=(ColumnPlan("a.b", "a_b", Stored.FLOAT),),
        label=_about().label,
        division=SplitPlan(order="a.b", fraction=0.1),
    )
    found = pq.read_table(made.training).column("a_b").to_pylist()
    assert sorted(found) == [float(i) for i in range(270)]


def test_columns_may_have_any_name_in_an_explanation(
    session: Session, tmp_path: Path
) -> None:
    names = ("n", "part", "file_row_number", "m", "record", "parts")
    listed = ", ".join(f"(i * {k}) % 7 AS {n}" for k, n in enumerate(names, 1))
    about = _about(*names)
    text = f"SELECT {listed}, i % 2 AS y FROM range(50) t(i) TO EXPLAIN m"
    statement = read(text)
    assert explain.prepare(session, statement, about, tmp_path) == 50
    rows = pq.read_table(tmp_path / "exchanged.parquet").to_pylist()
    assert len(rows) == 50 * (len(names) + 1)
    for part in range(len(names) + 1):
        mixed = rows[part * 50 : part * 50 + 50]
        pairs = list(zip(rows[:50], mixed, strict=True))
        changed = {n for n in names for a, b in pairs if a[n] != b[n]}
        assert changed == ({names[part - 1]} if part else set())
    # Answers that are right as long as nothing is exchanged.
    answers = [row["label"] if i < 50 else 0.0 for i, row in enumerate(rows)]
    table = pa.table({"record": range(len(rows)), "prediction": answers})
    (tmp_path / "outputs").mkdir()
    pq.write_table(table, tmp_path / "outputs" / "part-0.parquet")
    (bars,) = explain.finish(session, statement, about, tmp_path, {})
    assert isinstance(bars, Bars)
    assert dict(bars.values) == dict.fromkeys(names, 0.5)
    (tmp_path / "g").mkdir()
    assert gradients.prepare(session, statement, about, tmp_path / "g") == 50


@pytest.mark.parametrize(
    ("verb", "parts"),
    [("EVALUATE", evaluate), ("EXPLAIN", explain), ("EXPLAIN", gradients)],
)
def test_a_question_about_no_rows_prepares_none(
    session: Session, tmp_path: Path, verb: str, parts: Any
) -> None:
    statement = read(f"SELECT 1.5 AS x, 1 AS y WHERE false TO {verb} m")
    assert parts.prepare(session, statement, _about("x"), tmp_path) == 0


def test_a_label_of_one_value_in_many_rows_is_refused(
    session: Session, tmp_path: Path
) -> None:
    text = "SELECT i AS x, 'a' AS y FROM range(12000) t(i) LABEL y INTO m"
    with pytest.raises(DataError, match="one value alone"):
        train(session, text, tmp_path)


def test_a_label_may_be_named_with_its_table(session: Session, tmp_path: Path) -> None:
    rows = "SELECT i AS x, i % 2 AS y FROM range(9) t(i)"
    statement = read(f"{rows} TO EVALUATE m LABEL t.y")
    assert evaluate.prepare(session, statement, _about("x"), tmp_path) == 9


def test_a_prediction_may_be_called_probability(tmp_path: Path) -> None:
    names = results.names_beside(("x", "prediction"), "probability")
    assert names == results.Names("probability", "probability_2")
    assert results.names_beside(("Prediction",)) == results.Names("prediction_2")


def test_a_column_that_would_come_back_as_another_type_is_refused(
    session: Session, tmp_path: Path
) -> None:
    text = (
        "SELECT 1.5 AS x, union_value(n := 2) AS u, [{'a': union_value(n := 2)}] AS v, "
        "row(1, 'a') AS w TO PREDICT t USING m"
    )
    told = r"`u` is a UNION.*`v` is a STRUCT.*`w` is a TUPLE.*leave it out, or CAST it"
    with pytest.raises(SpecError, match=told):
        predict.prepare(session, read(text), _about("x"), tmp_path)
    assert not (tmp_path / "rows.parquet").exists()


def test_a_column_may_have_the_name_of_the_engines_own(
    session: Session, tmp_path: Path
) -> None:
    names = ("file_row_number", "record", "source", "filename", "file_index")
    listed = ", ".join(f"i * {k} AS {name}" for k, name in enumerate(names, 1))
    text = f"SELECT {listed} FROM range(5) t(i) TO PREDICT out USING m"
    statement = read(text)
    label = LabelPlan("y", Kind.NUMBER, Head.NUMBER)
    about = replace(_about("record"), label=label)
    assert predict.prepare(session, statement, about, tmp_path) == 5
    (tmp_path / "outputs").mkdir()
    table = pa.table({"record": range(5), "prediction": [i / 2 for i in range(5)]})
    pq.write_table(table, tmp_path / "outputs" / "part-0.parquet")
    predict.finish(session, statement, about, tmp_path, {})
    found = session.source.execute("SELECT * FROM out", most_rows=9)
    assert found.names == (*names, "prediction")
    assert sorted(found.rows) == [
        (*(i * k for k in range(1, 6)), i / 2) for i in range(5)
    ]


@pytest.mark.parametrize(
    ("stored", "longest", "value", "told"),
    [
        (Stored.TEXT, 0, "1", r"`x` is integer \(INTEGER\), .*trained with text; C"),
        (Stored.TEXT, 0, "DATE '2026-01-01'", "is time .*trained with text"),
        (Stored.TEXT, 0, "['a']", "is array .*trained with text"),
        (Stored.TEXT, 2, "[1]", "is array .*trained with arrays of text"),
        (Stored.FLOAT, 2, "['1']", "is array .*trained with arrays of numbers"),
        (Stored.FLOAT, 0, "[1]", "is array .*trained with numbers"),
        (Stored.INTEGER, 0, "'1'", "is text .*trained with numbers"),
    ],
)  # fmt: skip
def test_a_column_of_another_kind_than_the_models_is_refused(
    session: Session,
    tmp_path: Path,
    stored: Stored,
    longest: int,
    value: str,
    told: str,
) -> None:
    about = replace(_about(), columns=(ColumnPlan("x", "x", stored, longest),))
    with pytest.raises(SpecError, match=told):
        stage(session, f"SELECT {value} AS x", about, tmp_path)
    stage(session, "SELECT NULL AS x", about, tmp_path)


def test_an_infinity_in_the_rows_of_a_question_is_named(
    session: Session, tmp_path: Path
) -> None:
    rows = "SELECT 'inf'::DOUBLE AS X, 1 AS y"
    for place in ("p", "e"):
        (tmp_path / place).mkdir()
    statement = read(f"{rows} TO PREDICT USING m")
    with pytest.raises(DataError, match="column `X` is infinite in 1 row"):
        predict.prepare(session, statement, _about("x"), tmp_path / "p")
    statement = read(f"{rows} TO EVALUATE m")
    with pytest.raises(DataError, match="column `X` is infinite in 1 row"):
        evaluate.prepare(session, statement, _about("x"), tmp_path / "e")


@pytest.mark.parametrize(("value", "longest"), [("-1e39", 0), ("[1, 1e39]", 2)])
def test_a_number_that_a_model_has_not_is_named_with_its_column(
    session: Session, tmp_path: Path, value: str, longest: int
) -> None:
    about = replace(_about(), columns=(ColumnPlan("x", "x", Stored.FLOAT, longest),))
    (tmp_path / "p").mkdir()
    statement = read(f"SELECT {value} AS x TO PREDICT USING m")
    with pytest.raises(DataError, match=r"column `x` .*is beyond 3\.4e38.* in 1 row"):
        predict.prepare(session, statement, about, tmp_path / "p")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            "'1.5'",
            r"the label `y` is text \(VARCHAR\), the model learned numbers; CAST",
        ),
        ("DATE '2026-01-01'", "the label `y` is time .*learned numbers"),
        ("true", ""),
        ("1", ""),
        ("1.5::DECIMAL(3, 1)", ""),
    ],
)
@pytest.mark.parametrize("kind", [Kind.NUMBER, Kind.INTEGER, Kind.BOOLEAN])
def test_a_label_of_another_kind_than_the_regressors_is_refused_at_start(
    session: Session, tmp_path: Path, kind: Kind, value: str, told: str
) -> None:
    about = replace(_about("x"), label=LabelPlan("y", kind, Head.NUMBER))
    statement = read(f"SELECT 1 AS x, {value} AS y TO EVALUATE m")
    if not told:
        assert evaluate.prepare(session, statement, about, tmp_path) == 1
        return
    with pytest.raises(SpecError, match=told):
        evaluate.prepare(session, statement, about, tmp_path)
    assert not (tmp_path / "rows.parquet").exists()


def test_a_metric_of_two_classes_is_not_dropped_where_a_third_comes_late(
    session: Session, tmp_path: Path
) -> None:
    text = (
        "SELECT i AS x, CASE WHEN i > 11000 THEN 'c' WHEN i % 2 = 0 THEN 'a' ELSE 'b' "
        "END AS y FROM range(12000) t(i) TO TRAIN DNNClassifier "
        "WITH validation.metrics = 'AUC' LABEL y INTO m"
    )
    with pytest.raises(StatementError, match=r"AUC does not go .* `y` has 3 classes"):
        train(session, text, tmp_path)


def test_a_view_is_no_place_for_answers(session: Session, tmp_path: Path) -> None:
    session.source.execute("CREATE VIEW v AS SELECT 1 AS x", most_rows=1)
    for text, parts in (
        ("PREDICT v USING m", predict),
        ("EVALUATE m INTO v", evaluate),
        ("EXPLAIN m INTO v", explain),
        ("EXPLAIN m USING IntegratedGradients INTO v", gradients),
    ):
        statement = read(f"SELECT 1 AS x, 1 AS y TO {text}")
        with pytest.raises(DataError, match="table v cannot be written"):
            parts.prepare(session, statement, _about("x"), tmp_path)
    assert not (tmp_path / "rows.parquet").exists()


def test_a_dry_run_runs_nothing_but_trainings_without_their_job(
    tmp_path: Path,
) -> None:
    """It once dropped models and tables, and ran predictions."""

    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    source = open_source(str(tmp_path / "shop.duckdb"))
    registry = Registry(tmp_path / "models")
    with registry.adding("m") as version:
        write_description(version, _about("x"))
    source.execute("CREATE TABLE t AS SELECT 1 AS x", most_rows=1)
    session = Session(
        source, registry, run_job, lambda _: None, dry_run=tmp_path / "dry"
    )
    train = "SELECT i AS x, i % 2 AS y FROM range(9) s(i) LABEL y INTO m"
    for text in (
        "DROP MODEL m",
        "DROP TABLE t",
        "SELECT * FROM t TO PREDICT p USING m",
        "SELECT *, 1 AS y FROM t TO EVALUATE m",
        "SELECT *, 1 AS y FROM t TO EXPLAIN m",
    ):
        with pytest.raises(StatementError, match=r"line 2, .* --dry-run runs nothing"):
            list(run(session, f"{train};\n{text}"))
    with pytest.raises(StatementError, match=r"line 2, .* a second TO TRAIN; --dry"):
        list(run(session, f"{train};\n{train}"))
    assert not (tmp_path / "dry").exists()
    assert [one.reference for one in registry.all()] == ["m@1"]
    assert source.execute("SELECT * FROM t", most_rows=1).rows == ((1,),)
    assert len(list(run(session, f"SHOW MODELS; {train}"))) == 2
    assert (tmp_path / "dry" / "job.yaml").exists()
    source.close()


def test_answers_that_no_table_takes_are_kept(tmp_path: Path) -> None:
    """They may be the work of hours, and the table was there when it was tried."""
    source = open_source(f"sqlite:///{tmp_path / 't.sqlite'}")
    session = Session(
        source, Registry(tmp_path / "models"), lambda _: None, lambda _: None
    )
    statement = read("SELECT 1 AS x TO PREDICT p USING m")
    folder = tmp_path / "work"
    (folder / "outputs").mkdir(parents=True)
    assert predict.prepare(session, statement, _about("x"), folder) == 1
    pq.write_table(
        pa.table({"record": [0], "prediction": pa.array([0.75], pa.float32())}),
        folder / "outputs" / "part-0.parquet",
    )
    source.execute(
        "CREATE VIEW p AS SELECT 1 AS prediction, 2 AS probability", most_rows=1
    )
    with pytest.raises(DataError, match=r"cannot be written.* kept in ") as caught:
        predict.finish(session, statement, _about("x"), folder, {})
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert pq.read_table(kept).to_pylist() == [
        {"x": 1, "prediction": 1, "probability": 0.75}
    ]
    assert not session.registry.all()
    source.close()


def test_a_file_that_cannot_be_written_is_told_before_a_job_runs(
    session: Session, tmp_path: Path
) -> None:
    for place in ("nowhere/p.csv", "folder.csv"):
        (tmp_path / "folder.csv").mkdir(exist_ok=True)
        statement = read(f"SELECT 1 AS x TO PREDICT '{tmp_path / place}' USING m")
        with pytest.raises(DataError, match=r"\.csv: cannot be written; expected a"):
            predict.prepare(session, statement, _about("x"), tmp_path)


@pytest.mark.parametrize("num_classes", [0, 2, 3])
def test_an_answer_that_is_no_number_is_null_and_told(
    tmp_path: Path, num_classes: int
) -> None:
    """It passed for the second class, or the first of several."""
    said: list[str] = []
    source = open_source("", folder=tmp_path)
    session = Session(
        source, Registry(tmp_path / "models"), lambda _: None, said.append
    )
    head = {0: Head.NUMBER, 2: Head.BINARY, 3: Head.CLASSES}[num_classes]
    label = LabelPlan("y", Kind.TEXT, head, num_classes, tuple("abc"[:num_classes]))
    about = replace(_about("x"), label=label)
    statement = read("SELECT i AS x FROM range(2) t(i) TO PREDICT USING m")
    predict.prepare(session, statement, about, tmp_path)
    nan = float("nan")
    some = [[nan] * 3, [0.2, 0.7, 0.1]] if num_classes == 3 else [nan, 0.25]
    (tmp_path / "outputs").mkdir()
    pq.write_table(
        pa.table({"record": [0, 1], "prediction": some}),
        tmp_path / "outputs" / "part-0.parquet",
    )
    (table,) = predict.finish(session, statement, about, tmp_path, {})
    right = {0: (0.25,), 2: ("a", 0.75), 3: ("b", 0.7)}[num_classes]
    nulls = (None,) * len(right)
    assert table.rows == ((0, *nulls), (1, *right))
    assert said[-1].startswith("1 row has NULL as `prediction`: the model's answer is")
    source.close()


@pytest.mark.parametrize("using", ["PermutationImportance", "IntegratedGradients"])
def test_explain_looks_at_as_many_rows_as_the_statement_says(
    session: Session, tmp_path: Path, using: str
) -> None:
    """The attribute was taken, and had no effect."""
    found = []
    for seed in ("", ", explain.seed = 7"):
        statement = read(
            "SELECT i AS x, i % 2 AS y FROM range(900) t(i) TO EXPLAIN m WITH "
            f"explain.num_rows = 30{seed} USING {using}"
        )
        folder = tmp_path / f"work{len(found)}"
        folder.mkdir()
        parts = parts_of(statement)
        assert parts.prepare(session, statement, _about("x"), folder) == 30
        fields = parts.job_fields(statement, _about("x"), str(folder), _values().job)
        name = fields["job.data.prediction"]
        found.append(sorted(pq.read_table(name).column("x").to_pylist()))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "path", ["job.checkpoint.dir", "job.export.dir", "job.export", "job.data.training"]
)
def test_what_a_statement_writes_is_not_set_elsewhere(
    session: Session, path: str
) -> None:
    """The model would be trained, and its version would have nothing."""
    for said in (path, path.removeprefix("job.")):
        one = replace(session, overrides=[f"{said}=x"])
        with pytest.raises(SpecError, match=rf"--set {said}: a statement writes job\."):
            list(run(one, "SELECT 1"))
    told = "is what the statement makes; take it out"
    if path != "job.export":
        with pytest.raises(StatementError, match=told):
            read(
                f"SELECT 1 AS y TO TRAIN DNNClassifier WITH {path} = 'x' LABEL y INTO m"
            )


def test_a_metric_that_does_not_go_with_a_model_is_told_before_rows_areread(
    session: Session,
) -> None:
    with session.registry.adding("m") as version:
        (version.folder / "job.yaml").write_text(dump_values(_values()))
        write_description(version, _about("x"))
    text = (
        "SELECT error('rows were read') AS x, 1 AS y TO EVALUATE m "
        "WITH validation.metrics = 'MAE'"
    )
    with pytest.raises(SpecError, match="does not go with a label of classes"):
        list(run(session, text))


@pytest.mark.parametrize(
    "damaged",
    ["{", "[]", '{"columns": 3}', ('"evaluation": {}', '"evaluation": {"auc": null}')],
)
def test_one_version_that_cannot_be_read_hides_no_other(
    session: Session, damaged: str | tuple[str, str]
) -> None:
    for _ in range(3):
        with session.registry.adding("m") as version:
            write_description(version, _about("x"))
    version = session.registry.find("m@2")
    if isinstance(damaged, tuple):
        whole = version.model_file.read_text()
        assert damaged[0] in whole
        damaged = whole.replace(*damaged)
    version.model_file.write_text(damaged)
    ((_, (table,)),) = run(session, "SHOW MODELS")
    assert [row[0] for row in table.rows] == ["m@1", "m@2", "m@3"]
    assert table.rows[1][4].startswith("unreadable: ")
    assert table.rows[2][1] == "DNNClassifier"


@pytest.mark.parametrize(
    ("num_rows", "said", "told"),
    [
        (120, {}, "10 epochs of these rows are 10 steps, "),
        (1_152, {}, "10 epochs of these rows are 90 steps, "),
        (1_153, {}, ""),
        (120, {"epochs": 11}, ""),  # whoever says it knows it
        (120, {"batch_size": 64}, ""),
    ],
)
def test_a_training_of_few_steps_is_told_what_makes_more(
    num_rows: int, said: dict[str, int], told: str
) -> None:
    """Of 120 flowers a model knew three of four, where 97 of 100 are known."""
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    model = ModelPlan("DNNClassifier", "dnn")
    plan = TrainPlan("m", Schema(()), (), (), label, model, SplitPlan(), (), **said)
    line = few_steps(plan, num_rows)
    assert line.startswith(told)
    assert bool(line) == bool(told)


def test_a_job_that_left_no_checkpoint_makes_no_version(session: Session) -> None:
    with (
        pytest.raises(JobError, match="has no checkpoint: there is no model to keep"),
        session.registry.adding("m") as version,
    ):
        keep(version, _about("x"), {"accuracy": 1.0}, last_loss=0.5, checkpoint="")
    assert session.registry.all() == []


def test_a_folder_may_have_a_name_that_engines_take_for_a_pattern(
    session: Session, tmp_path: Path
) -> None:
    """Statistics were of the rows of other folders too, whose names it stood for."""
    text = "SELECT i AS x, i % 2 AS y FROM range(50) t(i) LABEL y INTO m"
    for name in ("a1", "a[1]", "a*", "a?"):
        made = train(session, text, tmp_path / name)
        assert made.statistics.num_rows == made.shards.num_training
        assert made.statistics.of(Measured("x")).num_rows < 50
        folder = tmp_path / f"p{name}"
        folder.mkdir()
        statement = read("SELECT i AS x FROM range(5) t(i) TO PREDICT USING m")
        assert predict.prepare(session, statement, _about("x"), folder) == 5
        (folder / "outputs").mkdir()
        answers = {"record": range(5), "prediction": pa.array([0.5] * 5, pa.float32())}
        pq.write_table(pa.table(answers), folder / "outputs" / "part-0.parquet")
        (table,) = predict.finish(session, statement, _about("x"), folder, {})
        assert len(table.rows) == 5


def test_a_model_that_is_not_there_is_told_before_the_first_statement_runs(
    session: Session,
) -> None:
    """The training before it ran for hours, and the typing error came then."""
    text = (
        "SELECT 1 AS x, 1 AS y FROM range(9) LABEL y INTO shop;\n"
        "SELECT 1 AS x TO PREDICT USING shop;\n"
        "SELECT 1 AS x TO PREDICT USING shpo;\n"
        "SHOW TRAIN other@2; DROP MODEL IF EXISTS other; DROP MODEL other"
    )
    with pytest.raises(StatementError) as caught:
        list(run(session, text))
    places = [(one.at.line, one.at.column) for one in caught.value.problems]
    assert places == [(3, 32), (4, 12), (4, 60)]


def test_columns_that_a_model_does_not_take_are_told_with_a_caret(
    session: Session,
) -> None:
    with session.registry.adding("m") as version:
        (version.folder / "job.yaml").write_text(dump_values(_values()))
        write_description(version, _about("a", "b"))
    with pytest.raises(StatementError) as caught:
        list(run(session, "SELECT 1 AS c,\n'x' AS b TO PREDICT USING m"))
    assert [(one.at.line, one.at.column) for one in caught.value.problems] == [
        (2, 27),
        (2, 27),
    ]
    assert "needs the column `a`" in str(caught.value)
    assert "column `b` is text" in str(caught.value)
