"""Claims about generated modules in Keras: what they encode, and that they reload."""

from __future__ import annotations

import importlib
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.sql.needs import feature_name
from elasticdl.sql.plan import (
    NULL_INTEGER,
    NULL_TEXT,
    Head,
    Stored,
    TrainPlan,
)
from elasticdl.sql.writing import beside
from keras import layers

from tests.integration.sql.chain import loaded
from tests.unit.sql import tables

# The other families are parts of these; test_chain serves what it trained.
_LARGE = ("wide_and_deep", "deepfm", "cross")
_KINDS = {Stored.FLOAT: "float32", Stored.INTEGER: "int64", Stored.TEXT: "string"}


def _module(sql: str, folder: Path) -> Any:
    return loaded(tables.generated(sql), folder)


def _rows(plan: TrainPlan, **others: list[Any]) -> dict[str, tf.Tensor]:
    """Return the rows as they lie in the shards."""
    found = {}
    for column in plan.columns:
        values = others.get(column.column, tables.VALUES[column.column])
        null: Any = {
            Stored.FLOAT: np.nan,
            Stored.INTEGER: NULL_INTEGER,
            Stored.TEXT: NULL_TEXT,
        }[column.stored]
        kind = _KINDS[column.stored]
        plain = [
            null if value is None else int(value) if kind == "int64" else value
            for value in values
        ]
        found[column.feature] = tf.constant(plain, kind)[:, None]
    return found


@pytest.mark.parametrize("name", tables.SAMPLES)
def test_no_column_is_called_as_a_layer_that_keras_names(
    name: str, tmp_path: Path
) -> None:
    """Such a column ended the job: names are there once in a model."""
    if name == "own":
        return  # its function is nobody's here
    sql = tables.SAMPLES[name]
    params = dict(tables.plan(sql).model.params)
    network = _module(sql, tmp_path).model(**params, **_options(name))
    own = {one.name for one in network.inputs}
    own |= {one.name for one in network.layers if isinstance(one, layers.Embedding)}
    given = {one.name for one in network.operations} - own
    assert given
    assert [one for one in given if feature_name(one, set()) == one] == []


def _options(name: str) -> dict[str, float]:
    return {} if name == "linear" else {"dropout": 0.5}


def test_columns_called_as_layers_and_words_of_python_are_served(
    tmp_path: Path,
) -> None:
    numbers = ("dense", "where", "class", "self", "sum_1")
    texts = ("string_lookup", "from", "category_encoding", "None")
    made = [f'i * {k} % 7 AS "{one}"' for k, one in enumerate(numbers, 1)]
    made += [f"'v' || i % 3 AS \"{one}\"" for one in texts]
    sql = f"SELECT {', '.join(made)}, i % 2 AS y FROM range(60) t(i) LABEL y INTO m"
    of = tables.trained(sql, tmp_path)
    network = loaded(of.made, tmp_path).model()
    rows = {
        one.feature: tf.constant([["v1"]] if one.stored is Stored.TEXT else [[1.0]])
        for one in of.plan.columns
    }
    network.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    (answer,) = served(**rows).values()
    assert answer.numpy() == pytest.approx(network(rows).numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("layers.Dense(2, activation='softmax')(x)", r"returned \(None, 2\), expected"),
        ("layers.Flatten()(x)[:, 0]", r"returned \(None,\), expected a tensor of"),
        ("None", "returned None, expected a tensor of shape"),
        ("layers.Dense(1)(x)", "ends in a layer without activation, expected prob"),
        ("layers.Dense(1, activation='sigmoid')(x)", ""),
        ("layers.Activation('sigmoid')(layers.Dense(1)(x))", ""),
    ],
)
def test_what_a_function_of_ones_own_may_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, told: str
) -> None:
    """Logits were trained as probabilities, and told as such: 2.3, without a word."""
    folder = f"own_{abs(hash(tmp_path))}"
    (tmp_path / folder).mkdir()
    text = "from keras import layers\ndef f(groups):\n    x = groups['features']\n"
    (tmp_path / folder / "net.py").write_text(f"{text}    return {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = _module(
        f"SELECT * FROM t TO TRAIN {folder}.net.f COLUMN age LABEL income INTO own",
        tmp_path,
    )
    if told:
        with pytest.raises(ValueError, match=told):
            made.model()
    else:
        assert made.model().output_shape == (None, 1)


@pytest.mark.parametrize("name", _LARGE)
def test_models_train_and_reload_equal(name: str, tmp_path: Path) -> None:
    sql = tables.SAMPLES[name]
    plan = tables.plan(sql)
    keras.utils.set_random_seed(0)
    network = _module(sql, tmp_path).model(**dict(plan.model.params))
    rows = _rows(plan)
    label = tables.VALUES[plan.label.column]
    classes = sorted(set(label)) if plan.label.classes else []
    y = np.array([classes.index(v) if classes else v for v in label], np.float32)
    losses = network.fit(rows, y, epochs=3, batch_size=50, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    predicted = np.asarray(network(rows))
    assert np.isfinite(predicted).all()
    network.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(np.asarray(again(rows)), predicted)


@pytest.mark.parametrize(
    ("name", "share"),
    # A softmax over a logarithm that is not standardised is steep along the path.
    [("wide_and_deep", 0.01), ("deepfm", 0.01), ("cross", 0.05)],
)
def test_shares_of_columns_add_up_to_the_prediction(
    name: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completeness, the axiom of integrated gradients."""
    keras.utils.set_random_seed(0)
    sql = tables.SAMPLES[name]
    plan = tables.plan(sql)
    _module(sql, tmp_path)
    features = [column.feature for column in plan.columns]
    text = beside.explained(f"sql.{name}.model", features)
    (tmp_path / beside.EXPLAINED_FILE).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [one for one in sys.modules if one.partition(".")[0] == "sql"]:
        monkeypatch.delitem(sys.modules, module)
    explained = importlib.import_module(beside.EXPLAINED.rpartition(".")[0])
    network = explained.model(**dict(plan.model.params))
    shares = np.asarray(network.predict_step((_rows(plan),)))
    assert shares.shape == (tables.NUM_ROWS, len(features) + 1)
    whole = shares[:, -1]
    difference = np.abs(shares[:, :-1].sum(axis=1) - whole).max()
    assert difference < share * np.abs(whole).max()


def _encoded(columns: str, tmp_path: Path, **values: list[Any]) -> list[np.ndarray]:
    """Return what `encode` makes of rows, entry by entry."""
    sql = f"SELECT * FROM t TO TRAIN DNNClassifier COLUMN {columns} LABEL income INTO m"
    plan = tables.plan(sql)
    module = _module(sql, tmp_path)
    return _said(module, plan, _rows(plan, **values))


def _trained(
    query: str, columns: str, tmp_path: Path, **values: list[Any]
) -> list[np.ndarray]:
    """Return what `encode` makes of values, by the statistics of a query's rows."""
    sql = f"{query} TO TRAIN DNNClassifier COLUMN {columns} LABEL y INTO m"
    trained = tables.trained(sql, tmp_path)
    module = loaded(trained.made, tmp_path)
    rows = {
        column.feature: tf.constant(values[column.column], _KINDS[column.stored])
        for column in trained.plan.columns
    }
    rows = {name: x if x.ndim > 1 else x[:, None] for name, x in rows.items()}
    return _said(module, trained.plan, rows)


def _said(module: Any, plan: TrainPlan, rows: dict[str, tf.Tensor]) -> list[np.ndarray]:
    inputs = {
        column.feature: keras.Input(
            (column.longest or 1,),
            name=column.feature,
            dtype=_KINDS[column.stored],
        )
        for column in plan.columns
    }
    parts = module.encode(inputs)["deep"]
    found = keras.Model(inputs, parts)(rows)
    return [np.asarray(part) for part in tf.nest.flatten(found)]


def test_numbers_are_encoded_by_the_statistics_and_null_is_the_mean(
    tmp_path: Path,
) -> None:
    age = np.array(tables.VALUES["age"], np.float64)
    standard, normal, raw, log = _encoded(
        "STANDARDIZE(age), NORMALIZE(age), RAW(age), STANDARDIZE(LOG(age))",
        tmp_path,
        age=[17, 80, None, 200],
    )
    given = np.array([17, 80, age.mean(), 200])
    np.testing.assert_allclose(standard[:, 0], (given - age.mean()) / age.std(), 1e-4)
    low, high = age.min(), age.max()
    np.testing.assert_allclose(normal[:, 0], (given - low) / (high - low), 1e-4, 1e-6)
    np.testing.assert_allclose(raw[:, 0], given, 1e-6)
    logs = np.log1p(age)
    expected = (np.log1p([17, 80, 0, 200]) - logs.mean()) / logs.std()
    expected[2] = 0.0
    np.testing.assert_allclose(log[:, 0], expected, 1e-4, 1e-5)


def test_null_and_unseen_values_have_entries_of_their_own(tmp_path: Path) -> None:
    city, bucket, known, cross = _encoded(
        "city, BUCKETIZE(age, [30, 60]), CATEGORY_ID(grade, 3), "
        "NULL_INDICATOR(user_id)",
        tmp_path,
        city=["Aachen", "Köln", None, "Ulm"],
        age=[29, 60, None, 59],
        grade=[0, 2, None, 7],
        user_id=[1, None, 2, 2**40],
    )
    # Vocabulary: unseen, then three cities, then NULL.
    assert city.argmax(axis=1)[[2, 3]].tolist() == [4, 0]
    assert city.sum(axis=1).tolist() == [1, 1, 1, 1]
    assert bucket.argmax(axis=1).tolist() == [0, 2, 3, 1]
    assert known.argmax(axis=1).tolist() == [0, 2, 3, 3]
    assert cross[:, 0].tolist() == [0, 1, 0, 0]


def test_parts_of_a_text_are_several_values(tmp_path: Path) -> None:
    (skills,) = _encoded(
        "INDICATOR(SPLIT(skills, ','))",
        tmp_path,
        skills=["sql,go", "sql", "cobol", None],
    )
    # No part is 0, unseen 1, then by frequency, then NULL.
    assert skills[:, 2:].sum(axis=1).tolist() == [2, 1, 0, 1]
    assert skills[:, 1].tolist() == [0, 0, 1, 0]


def test_values_with_weights_count_by_them(tmp_path: Path) -> None:
    query = "SELECT 'a:0.5,b:-2,c' AS t, i % 2 AS y FROM range(9) t(i)"
    columns = ", ".join(
        [
            "INDICATOR(WEIGHTED_CATEGORY(t, 97))",
            *(
                f"EMBEDDING(WEIGHTED_CATEGORY(t, 97), 3, '{combiner}')"
                for combiner in ("sum", "mean", "sqrtn")
            ),
        ]
    )
    texts = ["a:0.5,b:-2", "a", ",,b:3e1", "", "a:2,a:0.5,c:-1,d:9", "a:1,b:-1"]
    hot, total, mean, norm = _trained(query, columns, tmp_path, t=texts)
    one = hot[1]  # of a alone
    assert sorted(set(one.tolist())) == [0.0, 1.0]
    place_a, place_b = one.argmax(), hot[2].argmax()
    assert place_a != place_b
    assert (hot[0][place_a], hot[0][place_b]) == (0.5, -2.0)
    assert hot[2].sum() == 30.0
    assert not hot[3].any()
    assert hot[4][place_a] == 2.5  # the fourth part is beyond the longest row
    assert hot[4].sum() == 1.5
    vector_a, vector_b = total[1], total[2] / 30
    np.testing.assert_allclose(total[0], 0.5 * vector_a - 2 * vector_b, rtol=1e-4)
    # Each embedding has vectors of its own.
    combined = 0.5 * mean[1] - 2 * mean[2]
    np.testing.assert_allclose(mean[0], combined / -1.5, rtol=1e-4)
    combined = 0.5 * norm[1] - 2 * norm[2]
    np.testing.assert_allclose(norm[0], combined / 4.25**0.5, rtol=1e-4)
    assert np.isfinite(mean).all()
    for encoded in (total, mean, norm):
        assert not encoded[3].any()


def test_whole_numbers_in_a_text_are_the_category_themselves(tmp_path: Path) -> None:
    query = "SELECT '3,17' AS t, '3:0.5,17' AS w, i % 2 AS y FROM range(9) t(i)"
    columns = (
        "INDICATOR(CATEGORY_ID(SPARSE(t, 9, ',', int), 20)), "
        "INDICATOR(CATEGORY_ID(SPARSE(w, 9, ',', int, ':', float), 20)), "
        "EMBEDDING(CATEGORY_ID(SPARSE(t, 9, ',', int), 20), 3, 'sum')"
    )
    texts = ["3,17", " 0 , 19 ", ",3,,3", "20,-1", "9" * 18, "1.0", NULL_TEXT, ""]
    weights = ["3:0.5,17", "0:2", "19:-1", "20:3", "x:4", ":5", NULL_TEXT, ""]
    hot, weighted, summed = _trained(query, columns, tmp_path, t=texts, w=weights)
    # No part is 0, then the numbers from 0; the last is of all others.
    places = [set(np.flatnonzero(row).tolist()) - {0} for row in hot]
    assert places == [{4, 18}, {1, 20}, {4}, {21}, {21}, {21}, {21}, set()]
    found = [dict(zip(np.flatnonzero(r), r[r != 0], strict=True)) for r in weighted]
    assert found[:5] == [{4: 0.5, 18: 1.0}, {1: 2.0}, {20: -1.0}, {21: 3.0}, {21: 4.0}]
    np.testing.assert_allclose(summed[3], 2 * summed[4], rtol=1e-6)
    assert not summed[7].any()
    assert np.isfinite(summed).all()


def test_a_text_of_numbers_is_read_and_any_other_one_has_their_means(
    tmp_path: Path,
) -> None:
    query = (
        "SELECT CASE WHEN i % 3 = 0 THEN NULL ELSE i || ' , ' || i * -1e-3 END AS t, "
        "i % 2 AS y FROM range(90) t(i)"
    )
    texts = ["1,2", " 1.5e1 ,\t-.5", "-1e-120,3.4e38", NULL_TEXT]
    odd = ["", "1", "1,2,3", "1,x", "1,nan", "1,1e39", "x,1", ",", "1,0x1"]
    numbers, null = _trained(
        query, "DENSE(t, 2, comma), NULL_INDICATOR(t)", tmp_path, t=texts + odd
    )
    there = np.array([[i, -i / 1000] for i in range(90) if i % 3])
    means = there.mean(axis=0)
    right = [[1, 2], [15, -0.5], [0, 3.4e38]]
    np.testing.assert_allclose(numbers, right + [means] * (1 + len(odd)), 1e-6)
    assert null[:, 0].tolist() == [0, 0, 0, 1] + [0] * len(odd)


def test_the_means_of_many_numbers_are_a_file_beside_the_module(tmp_path: Path) -> None:
    listed = ", ".join(f"i + {place}" for place in range(40))
    query = f"SELECT concat_ws(';', {listed}) AS t, i % 2 AS y FROM range(9) t(i)"
    (numbers,) = _trained(query, "DENSE(t, [8, 5], ';')", tmp_path, t=[NULL_TEXT])
    assert numbers.tolist() == [[4.0 + place for place in range(40)]]


def test_empty_parts_of_a_text_take_no_places(tmp_path: Path) -> None:
    (tags,) = _trained(
        "SELECT CASE WHEN i % 2 = 0 THEN ',a,b,' ELSE ',b,c' END AS tags, i % 2 AS y "
        "FROM range(40) t(i)",
        "INDICATOR(SPLIT(tags))",
        tmp_path,
        tags=[",a,b,", ",b,c", "c,,,a", ",,"],
    )
    # No part is 0, unseen 1, then b, a and c.
    assert tags[:, 1:].tolist() == [
        [0, 1, 1, 0],
        [0, 1, 0, 1],
        [0, 0, 1, 1],
        [0, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("common", "seldom", "unseen"), [(-1, 3, 77), ("'[UNK]'", "'a'", "'zz'")]
)
def test_a_common_value_that_keras_has_for_unseen_ones_has_its_own_entry(
    common: Any, seldom: Any, unseen: Any, tmp_path: Path
) -> None:
    values = [[str(v).strip("'")] for v in (common, seldom, unseen)]
    if isinstance(common, int):
        values = [[common], [seldom], [unseen]]
    (ids,) = _trained(
        f"SELECT CASE WHEN i % 3 = 0 THEN {seldom} ELSE {common} END AS c, i % 2 AS y "
        "FROM range(90) t(i)",
        "VOCABULARIZE(c)",
        tmp_path,
        c=values,
    )
    assert ids.argmax(axis=1).tolist() == [1, 2, 0]


def test_a_text_that_ends_in_nul_is_another_one(tmp_path: Path) -> None:
    """It was taken for an unseen value, and the text without NUL for it."""
    (ids,) = _trained(
        "SELECT 'a' || chr((i % 2)::INTEGER) AS c, i % 2 AS y FROM range(90) t(i)",
        "VOCABULARIZE(c)",
        tmp_path,
        c=[["a\0"], ["a\1"], ["a"]],
    )
    assert ids.argmax(axis=1).tolist() == [1, 2, 0]


def test_numbers_of_an_array_that_is_a_category_too_have_0_for_null(
    tmp_path: Path,
) -> None:
    numbers, _ = _trained(
        "SELECT CASE WHEN i % 2 = 0 THEN [1, 2, 3] ELSE [5, 6] END AS a, i % 2 AS y "
        "FROM range(40) t(i)",
        "DENSE(a, 3), VOCABULARIZE(a)",
        tmp_path,
        a=[[1, 2, 3], [5, 6, NULL_INTEGER]],
    )
    assert numbers.tolist() == [[1, 2, 3], [5, 6, 0]]


def test_numbers_close_together_or_all_equal_are_standardised(tmp_path: Path) -> None:
    close, equal, normal = _trained(
        "SELECT i * 1e-10 AS close, 1700000001 AS same, 1700000001 AS big, "
        "i % 2 AS y FROM range(400) t(i)",
        "STANDARDIZE(close), STANDARDIZE(same), NORMALIZE(big)",
        tmp_path,
        close=[0.0, 399e-10],
        same=[1700000001.0] * 2,
        big=[1700000001.0] * 2,
    )
    end = 199.5 / np.std(np.arange(400))
    np.testing.assert_allclose(close[:, 0], [-end, end], 1e-4)
    assert np.abs(equal).max() < 1e-6
    assert np.abs(normal).max() < 1e-3


def test_a_column_may_be_called_as_a_layer_of_another(tmp_path: Path) -> None:
    sql = (
        "SELECT 'c' || i % 5 AS item, i * 0.5 AS item_weight, i % 2 AS y "
        "FROM range(40) t(i) TO TRAIN LinearClassifier COLUMN item, item_weight "
        "LABEL y INTO m"
    )
    made = tables.trained(sql, tmp_path).made
    names = [one.name for one in loaded(made, tmp_path).model().operations]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["FOLDER", "OUTPUTS", "NULL_TEXT"])
def test_a_column_may_be_called_as_a_constant_of_the_module(
    name: str, tmp_path: Path
) -> None:
    """Such a column ended the job."""
    sql = (
        f"SELECT i * 0.5 AS {name}, 'a long value with the number ' || i % 20 AS c, "
        f"i % 2 AS y FROM range(400) t(i) TO TRAIN LinearClassifier COLUMN {name}, c "
        "LABEL y INTO m"
    )
    made = tables.trained(sql, tmp_path).made
    assert loaded(made, tmp_path).model().output_shape == (None, 1)


def test_one_long_value_makes_no_others_of_a_vocabulary_long(tmp_path: Path) -> None:
    """Each took as much memory as the longest: a text of 64 KiB gigabytes of it."""
    sql = (
        "SELECT CASE WHEN i = 7 THEN repeat('x', 65_536) ELSE 'text ' || i % 3000 END "
        "AS t, i % 2 AS y FROM range(9000) t(i) TO TRAIN DNNClassifier "
        "COLUMN VOCABULARIZE(t) LABEL y INTO m"
    )
    module = loaded(tables.trained(sql, tmp_path).made, tmp_path)
    tracemalloc.start()
    network = module.model()
    (_, peak) = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**26
    network.save(tmp_path / "saved.keras")
    again = keras.saving.load_model(tmp_path / "saved.keras", compile=False)
    rows = {"t": tf.constant([["text 5"], ["x" * 65_536], ["other"]])}
    assert again(rows).numpy() == pytest.approx(network(rows).numpy(), abs=1e-6)


def test_the_auc_of_rare_positives_is_that_of_their_order(tmp_path: Path) -> None:
    """Of 1 in 3,000 it was 0.69 for 0.90, as most probabilities were taken for one."""
    rng = np.random.default_rng(0)
    odds = np.exp(2 * rng.normal(size=100_000) - 10)
    said = (odds / (1 + odds)).astype(np.float32)
    is_one = rng.random(len(said)) < said
    places = said.argsort().argsort() + 1
    ones = is_one.sum()
    above = places[is_one].sum() - ones * (ones + 1) / 2
    expected = above / (ones * (len(said) - ones))
    network = _module(tables.SAMPLES["wide_and_deep"], tmp_path).model()
    made: dict[str, Any] = {}
    exec(beside.evaluation(Head.BINARY, ["AUC"]), made)
    asked = made["eval_metrics_fn"]()["auc"]
    (trained,) = [
        keras.metrics.AUC.from_config(one["config"])
        for one in network.get_compile_config()["metrics"]
        if one["class_name"] == "AUC"
    ]
    for metric in (asked, trained):
        metric.update_state(is_one, said)
        assert float(metric.result()) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_numbers_are_encoded_with_all_digits_where_the_model_has_16_bits(
    policy: str, tmp_path: Path
) -> None:
    """Of thirty years three were left, and of amounts none that is a number."""
    keras.config.set_dtype_policy(policy)
    try:
        years, *amounts = _trained(
            "SELECT 1990 + i % 30 AS year, i * 1000.5 AS pay, i % 2 AS y "
            "FROM range(600) t(i)",
            "NORMALIZE(year), STANDARDIZE(pay), NORMALIZE(pay)",
            tmp_path,
            year=[1990 + i for i in range(30)],
            pay=[i * 20_010.0 for i in range(30)],
        )
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_allclose(years[:, 0], np.arange(30) / 29, atol=1e-6)
    for one in amounts:
        steps = np.diff(one[:, 0])
        np.testing.assert_allclose(steps, steps.mean(), rtol=1e-4)


@pytest.mark.parametrize("label", ["income", "grade", "pay"])
def test_predictions_have_all_digits_where_the_model_computes_with_16_bits(
    label: str, tmp_path: Path
) -> None:
    """A regressor of 50,000 had nothing between 49,920 and 50,176."""
    sql = f"SELECT * FROM t COLUMN age, city LABEL {label} INTO m"
    sql = sql.replace("COLUMN", "TO TRAIN DNNRegressor COLUMN")
    if label != "pay":
        sql = sql.replace("Regressor", "Classifier")
    module = _module(sql, tmp_path)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        network = module.model()
    finally:
        keras.config.set_dtype_policy("float32")
    assert network.layers[-1].compute_dtype == "float32"
    assert network.output.dtype == "float32"
