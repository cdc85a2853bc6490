"""Claims about models of one's own: `folder.file.function`, and whole modules."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticdl.sql import planning
from elasticdl.sql.data.source import open_source
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import ModelVersion, Registry
from elasticdl.sql.running.own import find_own
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.train import Prepared, prepare

from tests.unit.sql import tables

_FILE = """\
from mine.parts import dense

def towers(groups, units, depth=1):
    return dense(groups, units, depth)

def any_of(groups, **params):
    return dense(groups, **params)

def classes(groups, *, num_classes):
    return dense(groups, num_classes)

def whole(units=8, n_classes=2):
    return dense(units, n_classes)
"""
_SELECT = "SELECT i AS x, 'a' || i % 3 AS t, i % 2 AS y FROM range(90) r(i) TO TRAIN "


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "net.py").write_text(_FILE)
    (tmp_path / "mine" / "parts.py").write_text("def dense(*parts):\n    return 1\n")
    monkeypatch.chdir(tmp_path)

    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    source = open_source("", folder=tmp_path)
    yield Session(source, Registry(tmp_path / "models"), run_job, _said.append)
    source.close()


_said: list[str] = []


def _prepared(session: Session, clauses: str, folder: Path) -> Prepared:
    text = f"{_SELECT}{clauses} LABEL y INTO m"
    (statement,) = planning.read_statements(text, "duckdb")
    _said.clear()
    return prepare(session, statement, text, ModelVersion("m", 1, folder / "version"))


def _mistakes(session: Session, clauses: str, folder: Path) -> list[str]:
    with pytest.raises(StatementError) as caught:
        _prepared(session, clauses, folder)
    assert not list((folder / "version").rglob("*.parquet"))
    text = _SELECT + clauses
    return [
        f"{text[p.at.offset : p.at.offset + p.at.length]}: {p.message}"
        for p in caught.value.problems
    ]


def test_what_is_wrong_with_a_function_is_told_before_rows_are_read(
    session: Session, tmp_path: Path
) -> None:
    (told,) = _mistakes(session, "mine.nett.towers", tmp_path)
    assert told.startswith("mine.nett.towers: TO TRAIN mine.nett.towers: there is no")
    (told,) = _mistakes(session, "mine.net.tower WITH model.units = 1", tmp_path)
    assert "has no function `tower`; did you mean `towers`?" in told
    unknown, missing, column = sorted(
        _mistakes(session, "mine.net.towers WITH model.unit = 1 COLUMN z", tmp_path)
    )
    assert missing.startswith("model.unit: mine.net.towers has no argument `unit`; did")
    assert unknown.startswith(
        "mine.net.towers: mine.net.towers needs `units`; expected"
    )
    assert column.startswith("z: the query has no column `z`")


def test_a_function_gets_the_arguments_that_it_has_and_its_neighbours(
    session: Session, tmp_path: Path
) -> None:
    made = _prepared(session, "mine.net.any_of WITH model.a = [1, 2]", tmp_path)
    assert made.values.job.model.params == {"a": [1, 2]}
    assert {"mine/net.py", "mine/parts.py", "sql/m.py"} == {
        *made.values.job.model.files
    }
    with_count = "WITH model.num_classes = 2"
    made = _prepared(session, f"mine.net.classes {with_count}", tmp_path)
    assert made.values.job.model.params == {"num_classes": 2}
    # It has none: the number is compared with the data alone.
    clauses = f"mine.net.towers {with_count}, model.units = 3"
    made = _prepared(session, clauses, tmp_path)
    assert made.values.job.model.params == {"units": 3}


def test_what_a_whole_module_would_not_do_is_refused(
    session: Session, tmp_path: Path
) -> None:
    clauses = (
        "mine.net.whole WITH optimizer.learning_rate = 1, optimizer = sgd, "
        "validation.metrics = 'AUC' COLUMN STANDARDIZE(x), t FOR wide"
    )
    told = _mistakes(session, clauses, tmp_path)
    assert len(told) == 5
    assert sum("with an optimizer of its own" in one for one in told) == 2
    assert any("with metrics of its own" in one for one in told)
    assert any(one.startswith("STANDARDIZE: ") for one in told)
    assert any(one.startswith("wide: ") for one in told)


def test_parts_are_named_of_a_whole_module_alone(
    session: Session, tmp_path: Path
) -> None:
    """The job would say that the module, which is made, has no such function."""
    parts = "WITH job.model.loss = 'other', engine.callbacks = 'more'"
    told = _mistakes(
        session, f"mine.net.classes {parts}, model.num_classes = 2", tmp_path
    )
    assert len(told) == 2
    assert all("mine.net.classes is a function" in one for one in told)
    made = _prepared(session, f"mine.net.whole {parts}", tmp_path)
    assert made.values.job.model.loss == "other"
    assert made.values.job.model.callbacks == "more"


def test_columns_of_a_whole_module_come_as_they_are_and_it_is_said(
    session: Session, tmp_path: Path
) -> None:
    clauses = "mine.net.whole WITH model.n_classes = 2 COLUMN x, t"
    made = _prepared(session, clauses, tmp_path)
    assert made.values.job.model.params == {"n_classes": 2}
    assert made.values.job.model.definition == "mine.net.whole"
    assert _said[0] == "mine.net.whole: a whole module; as they are it gets x, t"


def test_a_folder_may_be_called_as_what_the_module_needs_itself() -> None:
    for folder in ("model", "layers", "ops", "metrics", "columns"):
        module = tables.generated(
            f"SELECT * FROM employee TO TRAIN {folder}.net.f LABEL income INTO own"
        ).module
        assert f"from {folder}.net import f as own\n" in module
        assert f"import {folder}\n" not in module.replace("import keras\n", "")


def test_the_folder_of_generated_modules_is_no_ones_own(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "m.py").write_text("def f(groups):\n    return groups\n")
    (told,) = _mistakes(session, "sql.m.f", tmp_path)
    assert "expected a folder of another name" in told


def test_what_a_model_of_ones_own_imports_of_other_folders_comes_along(
    tmp_path: Path,
) -> None:
    """It was not there in the job: only the modules of the folder itself were."""
    texts = {
        "net.py": "import helper\ndef f(groups):\n    return helper.g(groups)\n",
        "helper.py": "from common.deep.layers import g\nimport keras\n",
        "common/deep/layers.py": "from ..shared import h\ndef g(x):\n    return h(x)\n",
        "common/shared.py": "def h(x):\n    return x\n",
        "common/__init__.py": "",
        "common/.old/x.py": "no python",
        "a/b/c.py": "def f(groups):\n    return groups\n",
        "a/__init__.py": "import net\n",
        "common/unused.py": "no python",
        "other.py": "no python",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    common = {
        "common/unused.py",
        "common/deep/layers.py",
        "common/shared.py",
        "common/__init__.py",
    }
    assert set(find_own("net.f", [tmp_path]).files) == {"net.py", "helper.py", *common}
    found = set(find_own("a.b.c.f", [tmp_path]).files)
    assert found == {"a/b/c.py", "a/__init__.py", "net.py", "helper.py", *common}


_LOGITS = """\
def model():
    return 1

def loss(labels, predictions):
    return tf.nn.sigmoid_cross_entropy_with_logits(labels, predictions)

def of_odds(labels, predictions):
    return binary_crossentropy(labels, predictions, from_logits=False)

def compiled():
    return keras.losses.BinaryCrossentropy(from_logits=True)
"""


def test_a_module_that_gives_logits_of_classes_is_refused_before_it_is_trained(
    session: Session, tmp_path: Path
) -> None:
    """It was trained, and only TO PREDICT said that its answers are of no use."""
    (tmp_path / "mine" / "odds.py").write_text(_LOGITS)
    (told,) = _mistakes(session, "mine.odds.model", tmp_path)
    assert told.startswith("mine.odds.model: the loss of mine.odds.model takes logits")
    for loss in ("of_odds", "mine.odds.of_odds"):
        _prepared(session, f"mine.odds.model WITH job.model.loss = '{loss}'", tmp_path)
    shutil.rmtree(tmp_path / "version")
    (tmp_path / "mine" / "odds.py").write_text(_LOGITS.replace("def loss", "def los"))
    (told,) = _mistakes(session, "mine.odds.compiled", tmp_path)
    assert "takes logits" in told
    _prepared(session, "mine.odds.model", tmp_path)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("from mine.odds import loss", True),
        ("from mine.odds import compiled as loss", True),
        ("from model_zoo.mine.odds import compiled as loss", True),
        ("from .odds import loss", True),
        ("from mine.odds import of_odds as loss", False),
        ("from mine.odds import loss as of_odds\nloss = of_odds", True),
        ("loss = keras.losses.BinaryCrossentropy(from_logits=True)", True),
        ("loss: object = tf.nn.sigmoid_cross_entropy_with_logits", True),
        ("from keras.losses import binary_crossentropy as loss", False),
        ("from mine.round import loss", False),
    ],
)
def test_a_loss_of_logits_is_refused_under_any_name(
    session: Session, tmp_path: Path, line: str, refused: bool
) -> None:
    """Only a function of that name in the module itself was looked at."""
    (tmp_path / "mine" / "odds.py").write_text(_LOGITS)
    (tmp_path / "mine" / "round.py").write_text("from mine.round import loss\n")
    (tmp_path / "mine" / "other.py").write_text(f"{line}\n\ndef model():\n    1\n")
    if refused:
        (told,) = _mistakes(session, "mine.other.model", tmp_path)
        assert "takes logits" in told
    else:
        _prepared(session, "mine.other.model", tmp_path)


def test_parts_of_other_folders_come_along(session: Session, tmp_path: Path) -> None:
    """The job said that there is no such file: only imported folders were there."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "losses.py").write_text(
        "def f(labels, predictions):\n    1\n"
    )
    clauses = "mine.net.whole WITH job.model.loss = 'other.{}.f'"
    made = _prepared(session, clauses.format("losses"), tmp_path)
    assert "other/losses.py" in made.values.job.model.files
    shutil.rmtree(tmp_path / "version")
    (told,) = _mistakes(session, clauses.format("loses"), tmp_path)
    assert "there is no file other/loses.py" in told


def test_what_a_module_imports_of_model_zoo_goes_along_whatever_the_zoo_is_called(
    tmp_path: Path,
) -> None:
    for name, text in {
        "mine/net.py": "from model_zoo.other import parts\nfrom model_zoo import third",
        "other/parts.py": "from model_zoo.deep.down import x",
        "deep/down.py": "x = 1",
        "third.py": "",
        "fourth/parts.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n\ndef model():\n    return 1\n")
    files = find_own("mine.net.model", [tmp_path]).files
    assert sorted(files) == [
        "deep/down.py",
        "mine/net.py",
        "other/parts.py",
        "third.py",
    ]


def test_what_a_module_imports_of_a_folder_above_its_own_goes_along(
    tmp_path: Path,
) -> None:
    """The job said that there is no module `mine.parts`."""
    for name, text in {
        "mine/deep/net.py": "from ..parts import x\nfrom . import beside",
        "mine/deep/beside.py": "from .. import other",
        "mine/parts.py": "x = 1",
        "mine/other.py": "",
        "others/parts.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(f"{text}\n\ndef model():\n    return 1\n")
    files = find_own("mine.deep.net.model", [tmp_path]).files
    assert sorted(files) == [
        "mine/deep/beside.py",
        "mine/deep/net.py",
        "mine/other.py",
        "mine/parts.py",
    ]
