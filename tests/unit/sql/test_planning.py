"""Claims about plans: what is derived, what is needed, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from elasticdl.sql import planning
from elasticdl.sql.plan import (
    Bucketize,
    Category,
    Column,
    Embedding,
    Encoding,
    Hash,
    Head,
    Identity,
    Indicator,
    Kind,
    Measured,
    Normalize,
    Numbers,
    Preview,
    Raw,
    Schema,
    Source,
    Split,
    Standardize,
    StatisticsNeeded,
    Stored,
    Vocabularize,
)
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import check_name
from elasticdl.sql.running.staging import job_of, said_of_job
from elasticdl.sql.statements import Evaluate, Predict

from tests.unit.sql import tables

_T = "SELECT * FROM t TO TRAIN DNNClassifier "


def _told(sql: str, **options: Any) -> list[str]:
    with pytest.raises(StatementError) as caught:
        tables.plan(sql, tables.preview(**options))
    return [problem.message for problem in caught.value.problems]


def test_the_original_line_derives_model_and_columns_and_says_so() -> None:
    plan = tables.plan("SELECT * FROM t LABEL income INTO m")
    assert plan.model.name == "DNNClassifier"
    assert plan.label.head is Head.BINARY
    assert plan.label.classes == ("<=50K", ">50K")
    by_column = {f.encoding.of.column: f.encoding for f in plan.features}
    assert by_column["age"] == Standardize(Source("age"))
    assert by_column["city"] == Vocabularize(Source("city"), 10_000)
    assert by_column["married"] == Vocabularize(Source("married"))
    assert by_column["name"] == Hash(Source("name"), 4096)
    assert "income" not in by_column
    assert plan.notes[0] == ("DNNClassifier: the label income is text with 2 classes")
    assert "name: text, 200 values in 200 rows: hashed" in plan.notes
    assert len(plan.notes) == len(plan.features) + 1


@pytest.mark.parametrize(
    ("label", "model", "head"),
    [
        ("income", "DNNClassifier", Head.BINARY),
        ("married", "DNNClassifier", Head.BINARY),
        ("grade", "DNNClassifier", Head.CLASSES),
        ("age", "DNNRegressor", Head.NUMBER),
        ("pay", "DNNRegressor", Head.NUMBER),
    ],
)
def test_the_label_chooses_the_model(label: str, model: str, head: Head) -> None:
    plan = tables.plan(f"SELECT * FROM t LABEL {label} INTO m")
    assert (plan.model.name, plan.label.head) == (model, head)


def test_star_is_what_no_other_entry_uses() -> None:
    plan = tables.plan(_T + "COLUMN EMBEDDING(city, 8), * LABEL income INTO m")
    first, *others = plan.features
    assert first.encoding == Embedding(Vocabularize(Source("city"), 10_000), 8)
    assert len(others) == len(tables.SCHEMA.columns) - 2


def test_columns_lie_as_their_uses_want_them() -> None:
    plan = tables.plan(
        _T + 'COLUMN "hours per week", age, HASH(user_id, 9), STANDARDIZE(user_id), '
        "city LABEL income INTO m"
    )
    stored = {c.feature: c.stored for c in plan.columns}
    assert stored == {
        "hours_per_week": Stored.FLOAT,
        "age": Stored.FLOAT,
        "user_id": Stored.INTEGER,
        "city": Stored.TEXT,
    }


def test_a_column_called_label_is_a_feature_of_another_name() -> None:
    schema = Schema((Column("label", Kind.NUMBER), Column("y", Kind.BOOLEAN)))
    numbers = tuple(float(i) for i in range(200))
    first = tables.preview(schema=schema, label=numbers, y=(True, False) * 100)
    plan = tables.plan(_T + "COLUMN label LABEL y INTO m", first)
    assert [column.feature for column in plan.columns] == ["label_2"]


def test_each_thing_is_measured_once() -> None:
    plan = tables.plan(
        _T + "COLUMN STANDARDIZE(age), NORMALIZE(age), BUCKETIZE(age, 7), "
        "STANDARDIZE(LOG(pay)), VOCABULARIZE(SPLIT(skills, ',')) LABEL income INTO m"
    )
    needs = {need.of: need for need in plan.needs}
    assert len(needs) == len(plan.needs) == 4
    assert needs[Measured("age")].moments
    assert needs[Measured("age")].num_buckets == 7
    assert needs[Measured("pay", log=True)].moments
    assert needs[Measured("skills", split=",")].longest
    assert needs[Measured("income")].vocabulary


def test_buckets_of_a_logarithm_are_those_of_its_column() -> None:
    """Else a row lies on an edge, on this side or on that as a batch is large."""
    plan = tables.plan(
        _T + "COLUMN BUCKETIZE(LOG(pay), 5), BUCKETIZE(pay, 10) LABEL income INTO m"
    )
    assert [one.encoding for one in plan.features] == [
        Bucketize(Source("pay"), num_buckets=5),
        Bucketize(Source("pay"), num_buckets=10),
    ]
    needs = {need.of: need.num_buckets for need in plan.needs}
    assert needs[Measured("pay")] == 10
    assert Measured("pay", log=True) not in needs


def test_columns_that_split_the_rows_are_no_features() -> None:
    plan = tables.plan(_T + "WITH validation.key = 'user_id' LABEL income INTO m")
    assert plan.split.key == "user_id"
    assert "user_id" not in {column.column for column in plan.columns}
    assert "user_id: splits the rows, left out" in plan.notes


def test_attributes_become_fields_of_the_values_file() -> None:
    plan = tables.plan(
        _T + "WITH engine.num_workers = 2, job.ps.replicas = 1, train.epoch = 3, "
        "runtime.minibatch_size = 32 LABEL income INTO m"
    )
    assert dict(plan.fields) == {("worker", "replicas"): 2, ("ps", "replicas"): 1}
    assert (plan.epochs, plan.batch_size) == (3, 32)


def test_arguments_of_the_model_may_be_said_as_fields_of_the_values_file() -> None:
    """Beside one of model.* they were passed over without a word."""
    plan = tables.plan(
        _T + "WITH model.dropout = 0.1, job.model.params.hidden_units = [4] "
        "LABEL income INTO m"
    )
    assert dict(plan.model.params) == {"dropout": 0.1, "hidden_units": (4,)}
    assert plan.fields == ()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("job.model.params.hidden_unitz = [4]", "has no `model.hidden_unitz`; did you"),
        (
            "model.dropout = 0.1, job.model.params.dropout = 0.2",
            "says what `model.dropout` says already",
        ),
    ],
)
def test_a_mistake_in_such_a_field_is_one_of_the_argument(said: str, told: str) -> None:
    (found,) = _told(_T + f"WITH {said} LABEL income INTO m")
    assert told in found


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (
            "engine.records_per_task = 1024, train.batch_size = 64",
            {("training", "batchesPerTask"): 16},
        ),
        (
            "train.batch_size = 64, engine.records_per_task = 1024",
            {("training", "batchesPerTask"): 16},
        ),
        ("engine.use_async = true", {("ps", "mode"): "async"}),
        ("engine.use_async = false", {("ps", "mode"): "sync"}),
        (
            "engine.grads_to_wait = 2",
            {("ps", "gradsToWait"): 2, ("ps", "mode"): "sync"},
        ),
        (
            "job.ps.gradsToWait = 2, job.ps.mode = 'sync'",
            {("ps", "gradsToWait"): 2, ("ps", "mode"): "sync"},
        ),
    ],
)
def test_classic_flags_mean_together_what_they_mean_on_a_command_line(
    said: str, fields: dict[tuple[str, ...], object]
) -> None:
    plan = tables.plan(_T + f"WITH {said} LABEL income INTO m")
    assert dict(plan.fields) == fields


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ("COLUMN agee LABEL income INTO m", "no column `agee`; did you mean `age`?"),
        ("LABEL incom INTO m", "no column `incom`; did you mean `income`?"),
        ("COLUMN income LABEL income INTO m", "is the label; a model must not see it"),
        ("COLUMN STANDARDIZE(city) LABEL income INTO m", "takes a number"),
        ("COLUMN HASH(pay, 3) LABEL income INTO m", "put BUCKETIZE around a number"),
        ("COLUMN EMBEDDING(pay, 3) LABEL income INTO m", "put BUCKETIZE around"),
        ("COLUMN SPLIT(age) LABEL income INTO m", "SPLIT takes text"),
        (
            "COLUMN WEIGHTED_CATEGORY(age, 3) LABEL income INTO m",
            "takes text, as",
        ),
        (
            "COLUMN CROSS([age, WEIGHTED_CATEGORY(city, 3)], 9) LABEL income INTO m",
            "one value a row",
        ),
        ("COLUMN CATEGORY_ID(city, 3) LABEL income INTO m", "takes integers"),
        ("LABEL pay INTO m", "use DNNRegressor"),
        (
            "WITH validation.key = 'usr_id' LABEL income INTO m",
            "did you mean `user_id`",
        ),
        ("WITH model.num_classes = 5 LABEL income INTO m", "has 2 values"),
        ("WITH validation.metrics = 'MAE' LABEL income INTO m", "does not go with"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(clauses: str, message: str) -> None:
    (told,) = _told(_T + clauses)
    assert message in told


def test_mistakes_of_label_and_columns_are_told_together() -> None:
    told = _told(_T + "COLUMN agee, HASH(pay, 3) LABEL incom INTO m")
    assert len(told) == 3


def test_columns_may_be_named_with_their_table() -> None:
    plan = tables.plan(
        "SELECT * FROM t TO TRAIN DNNClassifier WITH validation.key = t.user_id "
        'COLUMN db.t.age, CROSS([t.city, t.married], 10), "t"."hours per week" '
        "LABEL t.income INTO m"
    )
    assert plan.label.column == "income"
    assert plan.split.key == "user_id"
    columns = {column.column for column in plan.columns}
    assert columns == {"age", "city", "married", "hours per week"}


@pytest.mark.parametrize("name", ["num_classes", "n_classes"])
def test_a_wrong_number_of_classes_has_its_caret_under_the_number(name: str) -> None:
    text = f"{_T}WITH model.{name} = 5 LABEL income INTO m"
    with pytest.raises(StatementError) as caught:
        tables.plan(text)
    (problem,) = caught.value.problems
    assert text[problem.at.offset :].startswith("5 LABEL")


def test_a_text_label_is_none_for_a_regressor() -> None:
    (told,) = _told("SELECT * FROM t TO TRAIN DNNRegressor LABEL income INTO m")
    assert "use DNNClassifier" in told


def test_null_labels_are_counted_and_the_where_is_named() -> None:
    income = (None, *tables.VALUES["income"][1:])
    (told,) = _told("SELECT * FROM t LABEL income INTO m", income=income)
    assert "NULL in 1 of the 200 rows" in told
    assert "WHERE income IS NOT NULL" in told


def test_dates_are_refused_with_the_extract_that_would_do() -> None:
    schema = Schema((*tables.SCHEMA.columns, Column("hired", Kind.TIME, stated="DATE")))
    (told,) = _told("SELECT * FROM t LABEL income INTO m", schema=schema)
    assert "EXTRACT(YEAR FROM hired) AS hired_year" in told


def test_a_value_in_the_place_of_fields_is_told() -> None:
    with pytest.raises(StatementError, match=r"`job\.worker` is 3; expected"):
        tables.plan(_T + "WITH job.worker = 3, job.worker.min = 0 LABEL income INTO m")


def test_rows_are_not_ordered_by_the_texts_of_an_enum() -> None:
    levels = Column("level", Kind.TEXT, stated="ENUM('low', 'mid', 'high')")
    schema = Schema((*tables.SCHEMA.columns, levels))
    values = {"level": ("low", "high") * 100}
    (told,) = _told(
        _T + "WITH validation.order = level LABEL income INTO m",
        schema=schema,
        **values,
    )
    assert "take its place in that order: enum_code(level) AS place" in told


def test_what_a_message_writes_for_the_user_is_sql_of_every_engine() -> None:
    """Names with blanks went without quotes, and MySQL has no EXTRACT(DOW)."""
    column = Column('Day of "it"', Kind.TIME, stated="DATETIME")
    for name in ("a b", "group"):
        schema = Schema((*tables.SCHEMA.columns, column, Column(name, Kind.TEXT)))
        values = {name: (None, *tables.VALUES["income"][1:])}
        sql = f'SELECT * FROM t LABEL "{name}" INTO m'
        told, label = _told(sql, schema=schema, **values)
        assert 'EXTRACT(MONTH FROM "Day of ""it""") AS "Day_of__it_month"' in told
        assert f'WHERE "{name}" IS NOT NULL' in label


def test_a_label_of_one_value_is_refused() -> None:
    (told,) = _told("SELECT * FROM t LABEL income INTO m", income=("x",) * 200)
    assert "nothing to tell apart" in told


def test_a_query_without_rows_is_told_as_such() -> None:
    preview = tables.preview()
    empty = Preview(preview.schema, dict.fromkeys(preview.values, ()), 0, True)
    with pytest.raises(StatementError, match="the query has no rows"):
        tables.plan("SELECT * FROM t LABEL income INTO m", empty)


def test_fractions_are_no_classes() -> None:
    pay = (-0.5, 0.5) * 100
    (told,) = _told(_T + "LABEL pay INTO m", pay=pay)
    assert "the value -0.5, expected whole numbers as classes; CAST it to" in told


def test_whole_numbers_of_a_fractional_type_are_classes() -> None:
    preview = tables.preview(pay=(1.0, 2.0, 5.0, 2.0) * 50)
    plan = tables.plan(_T + "LABEL pay INTO m", preview)
    assert plan.label.classes == (1.0, 2.0, 5.0)


def test_an_unknown_argument_of_an_optimizer_is_told_whatever_its_case() -> None:
    text = _T + "WITH optimizer.Foo = 1 LABEL income INTO m"
    with pytest.raises(StatementError, match="Adam has no `Foo`"):
        planning.read_statements(text, "duckdb")


@pytest.mark.parametrize(
    ("clauses", "key"),
    [
        ("TO PREDICT USING m", "predict.batch_size"),
        ("TO PREDICT USING m", "job.training.batchSize"),
        ("TO EVALUATE m", "validation.batch_size"),
    ],
)
def test_a_batch_size_of_a_question_is_one_of_its_job(clauses: str, key: str) -> None:
    text = f"SELECT * FROM t {clauses} WITH {key} = 7"
    (statement,) = planning.read_statements(text, "duckdb")
    assert isinstance(statement, Predict | Evaluate)
    assert said_of_job(statement) == {"job.training.batchSize": 7}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("SPLIT(city, '\\')", "is a part of \\N, which stands for NULL"),
        ("SPLIT(city, 'N')", "is a part of \\N, which stands for NULL"),
        ("SEQ_CATEGORY_ID(city, 9, '\\N')", "is a part of \\N"),
        ("WEIGHTED_CATEGORY(city, 9, '\\')", "is a part of \\N"),
        ("WEIGHTED_CATEGORY(city, 9, ',', '\\')", "is a part of \\N"),
        ("WEIGHTED_CATEGORY(city, 9, ':', '::')", "neither is in the other"),
        ("WEIGHTED_CATEGORY(city, 9, '::', ':')", "neither is in the other"),
        ("WEIGHTED_CATEGORY(city, 9), WEIGHTED_CATEGORY(city, 9, ';')",
         "another WEIGHTED_CATEGORY of `city` has the separators `,` and `:`"),
        ("WEIGHTED_CATEGORY(city, 9), WEIGHTED_CATEGORY(city, 9, pair='=')",
         "another WEIGHTED_CATEGORY of `city`"),
    ],
)  # fmt: skip
def test_separators_that_would_be_mistaken_are_refused(entry: str, told: str) -> None:
    (found,) = set(_told(_T + f"COLUMN {entry} LABEL income INTO m"))
    assert told in found


def test_weights_of_two_columns_may_have_separators_of_their_own() -> None:
    plan = tables.plan(
        _T + "COLUMN WEIGHTED_CATEGORY(city, 9), WEIGHTED_CATEGORY(city, 20), "
        "WEIGHTED_CATEGORY(skills, 9, ';') LABEL income INTO m"
    )
    assert [(c.column, c.delimiter) for c in plan.columns] == [
        ("city", ","),
        ("skills", ";"),
    ]


def test_names_of_models_are_those_that_a_folder_takes() -> None:
    for name in ("größe", "a" * 101, '"a-"', "_a", '"1a"'):
        (told,) = _told(f"{_T} LABEL income INTO {name}")
        assert "names no model; expected up to 100 letters of ASCII" in told
    check_name(tables.plan(f"{_T} LABEL income INTO {'a' * 100}").name)


def test_a_vector_whose_size_the_model_decides_is_told() -> None:
    (told,) = _told(
        "SELECT * FROM t TO TRAIN DeepFMClassifier COLUMN EMBEDDING(city, 16) "
        "LABEL income INTO m"
    )
    assert told.endswith(
        "have model.embedding_dim = 8 numbers; expected 8 here, or "
        "WITH model.embedding_dim = 16"
    )
    for model, group in (
        ("LinearClassifier", ""),
        ("WideAndDeepClassifier", "FOR wide"),
    ):
        plan = tables.plan(
            f"SELECT * FROM t TO TRAIN {model} COLUMN EMBEDDING(city, 16) {group} "
            "COLUMN age LABEL income INTO m"
        )
        assert any(
            one.startswith("city: a weight for each value") for one in plan.notes
        )


def test_the_vectors_of_several_values_are_combined_as_said_in_a_deepfm() -> None:
    made = tables.generated(
        "SELECT * FROM t TO TRAIN DeepFMClassifier COLUMN "
        "EMBEDDING(SPLIT(skills), 8, 'sum'), age LABEL income INTO m"
    )
    line = ', embedding_dim, "sum", "skills_vector")'
    assert line in made.module


@pytest.mark.parametrize(
    ("said", "strategy"),
    [
        (["job.worker.replicas=2"], "parameterServer"),
        (["job.worker.max=4", "job.worker.min=1"], "parameterServer"),
        (["job.ps.replicas=2"], "parameterServer"),
        (["worker.replicas=2"], "parameterServer"),
        (["job.worker.replicas=1"], "local"),
        (["job.worker.replicas=2", "job.strategy=allReduce"], "allReduce"),
    ],
)
def test_a_model_of_one_worker_predicts_with_as_many_as_one_says(
    said: list[str], strategy: str
) -> None:
    """The strategy of one worker, which nobody had written, refused two."""
    trained = tables.generated("SELECT * FROM t LABEL income INTO m").values
    changes = {
        "job.type": "predict",
        "job.data.prediction": "rows",
        "job.predictionOutput": "out",
    }
    values = job_of(trained, "checkpoints", changes, said)
    assert values.job.strategy == strategy
    if strategy != "allReduce":  # the same, as WITH says it
        fields = {
            f"job.{k.removeprefix('job.')}": yaml.safe_load(v)
            for k, v in (s.split("=") for s in said)
        }
        assert job_of(trained, "c", {**changes, **fields}, []).job.strategy == strategy


def test_what_is_derived_inside_a_function_is_shown_too() -> None:
    plan = tables.plan(
        f"{_T} COLUMN EMBEDDING(name, 8), INDICATOR(city), EMBEDDING(name, 4), "
        "CONCAT(grade, city) AS g LABEL income INTO m"
    )
    assert plan.notes == (
        "name: text, 200 values in 200 rows: hashed",
        "city: text, 3 values: by vocabulary",
        "grade: integer as category: by vocabulary",
    )


def test_sparse_is_taken_as_sqlflow_spelled_it() -> None:
    text = Source("skills")
    for written, encoding in (
        ("SPARSE(skills, 20, ',', int)", Hash(Split(text, ","), 20)),
        ("SPARSE(skills, [20], delim=';', dtype=int)", Hash(Split(text, ";"), 20)),
        ("SPARSE(skills, shape=20)", Hash(Split(text, ","), 20)),
        ("SPARSE(skills, 20, ',', int, ':', int)", Hash(Split(text, ",", ":"), 20)),
    ):
        plan = tables.plan(f"{_T} COLUMN EMBEDDING({written}, 4) LABEL income INTO m")
        assert plan.features[0].encoding == Embedding(encoding, 4)


@pytest.mark.parametrize(
    ("written", "encoding"),
    [
        ("DENSE(skills, 5)", Raw(Numbers(Source("skills"), ",", 5))),
        ("DENSE(skills, [5], ';')", Raw(Numbers(Source("skills"), ";", 5))),
        ("DENSE(skills, 5, comma)", Raw(Numbers(Source("skills"), ",", 5))),
        ("DENSE(skills, [28, 28], COMMA, float)",
         Raw(Numbers(Source("skills"), ",", 784))),
        ("NUMERIC(skills, 1)", Raw(Numbers(Source("skills"), ",", 1))),
        ("DENSE(age)", Raw(Source("age"))),
        ("DENSE(age, 1, comma)", Raw(Source("age"))),
        ("BUCKET(DENSE(age, 1), [18, 30])", Bucketize(Source("age"), 0, (18.0, 30.0))),
        ("NORMALIZE(NUMERIC(age, 1))", Normalize(Source("age"))),
        ("CATEGORY_ID(DENSE(grade), 4)", Identity(Source("grade"), 4)),
        ("CATEGORY_HASH(DENSE(city), 9)", Hash(Source("city"), 9)),
    ],
)  # fmt: skip
def test_dense_is_taken_as_sqlflow_spelled_it(written: str, encoding: Encoding) -> None:
    plan = tables.plan(f"{_T} COLUMN {written} LABEL income INTO m")
    assert plan.features[0].encoding == encoding


_PARTS = Hash(Split(Source("skills"), ","), 20)
_WEIGHTS = Hash(Split(Source("skills"), ",", ":"), 20)


@pytest.mark.parametrize(
    ("written", "encoding"),
    [
        ("CATEGORY_HASH(SPARSE(skills, 9, comma, int), 20)", _PARTS),
        ("CATEGORY_ID(SPARSE(skills, [9], ',', int), 20)", _PARTS),
        ("CATEGORY_ID(DENSE(skills, 3, ',', int), 20)", _PARTS),
        ("SEQ_CATEGORY_ID(SPARSE(skills, none, ','), 20)", _PARTS),
        ("SEQ_CATEGORY_ID(skills, 20)", _PARTS),
        ("SPARSE(skills, 20, ',', int, ':', float)", _WEIGHTS),
        ("CATEGORY_ID(SPARSE(skills, 9, ',', int, ':', float), 20)", _WEIGHTS),
        ("WEIGHTED_CATEGORY(skills, 20)", _WEIGHTS),
        ("WEIGHTED_CATEGORY(CATEGORY_HASH(skills, 20))", _WEIGHTS),
        ("WEIGHTED_CATEGORY(SPARSE(skills, 20, ',', int, ':'))", _WEIGHTS),
        ("WEIGHTED_CATEGORY(CATEGORY_ID(SPARSE(skills, 9, ',', int, ':', float), 20))",
         _WEIGHTS),
        ("WEIGHTED_CATEGORY(CATEGORY_HASH(SPARSE(skills, 9, comma, int, '='), 20))",
         Hash(Split(Source("skills"), ",", "="), 20)),
    ],
)  # fmt: skip
def test_categories_nest_as_sqlflow_spelled_them(
    written: str, encoding: Category
) -> None:
    for outer, made in (
        (written, encoding),
        (f"EMBEDDING({written}, 4, 'sum')", Embedding(encoding, 4, "sum")),
        (f"INDICATOR({written})", Indicator(encoding)),
    ):
        plan = tables.plan(f"{_T} COLUMN {outer} LABEL income INTO m")
        assert plan.features[0].encoding == made
        pair = encoding.of.pair if isinstance(encoding, Hash) else None
        assert plan.column("skills").pair == pair


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("DENSE(skills)", "`skills` is text; expected how many numbers each has, as"),
        ("DENSE(skills, none, ',')", "expected how many numbers each has"),
        ("DENSE(skills, 0)", "expected `shape`, a whole number, 1 or more"),
        ("DENSE(skills, [2, 'x'])", "expected `shape`, a whole number, 1 or more"),
        ("DENSE(skills, [])", "expected `shape`, as 5 or [28, 28]"),
        ("DENSE(skills, [200, 200])", "expected 10,000 numbers at most"),
        ("DENSE(skills, 5, 'N')", "is a part of \\N, which stands for NULL"),
        (
            "DENSE(skills, 5), DENSE(skills, 4)",
            "another DENSE of `skills` has 5 numbers",
        ),
        ("DENSE(skills, 5), DENSE(skills, 5, ';')", "has 5 numbers with `,` between"),
        ("DENSE(skills, 5), WEIGHTED_CATEGORY(skills, 9)", "in WEIGHTED_CATEGORY; no"),
        ("WEIGHTED_CATEGORY(skills, 9), DENSE(skills, 5)", "in WEIGHTED_CATEGORY; no"),
        ("DENSE(age, 5)", "`age` is integer, one value a row; expected a text or an"),
        ("STANDARDIZE(DENSE(skills, 5))", "STANDARDIZE takes a column or LOG(column)"),
        ("WEIGHTED_CATEGORY(skills)", "WEIGHTED_CATEGORY needs `buckets`; expected"),
        ("WEIGHTED_CATEGORY(EMBEDDING(skills, 9))", "this is no column"),
        ("CATEGORY_HASH(SPARSE(age, 9), 9)", "`age` is integer; CATEGORY_HASH takes"),
    ],
)
def test_a_text_of_numbers_that_cannot_be_is_refused(entry: str, told: str) -> None:
    (found,) = set(_told(_T + f"COLUMN {entry} LABEL income INTO m"))
    assert told in found


def test_a_text_of_numbers_lies_as_it_is_with_what_it_has_to_hold() -> None:
    plan = tables.plan(f"{_T} COLUMN DENSE(skills, 3, ';'), city LABEL income INTO m")
    column = plan.column("skills")
    assert (column.stored, column.delimiter, column.numbers) == (Stored.TEXT, ";", 3)
    assert plan.column("city").numbers == 0
    of = Measured("skills", split=";", numbers=3)
    assert StatisticsNeeded(of, means=True) in plan.needs


def test_an_initializer_that_would_have_no_effect_is_refused() -> None:
    (told,) = _told(
        f"{_T} COLUMN EMBEDDING(city, 4, 'sum', 'zeros') LABEL income INTO m"
    )
    assert told.startswith("EMBEDDING takes 3 arguments, this is one more")


def test_a_name_may_be_used_before_it_is_given() -> None:
    one, other = (
        tables.plan(f"{_T} COLUMN {columns} LABEL income INTO m").features
        for columns in (
            "CONCAT(city, grade) AS g, EMBEDDING(g, 4)",
            "EMBEDDING(g, 4), CONCAT(city, grade) AS g",
        )
    )
    assert one == other
    wrong = f"{_T} COLUMN INDICATOR(g), CONCAT(city, z) AS g LABEL income INTO m"
    assert any("no column `z`" in one for one in _told(wrong))
