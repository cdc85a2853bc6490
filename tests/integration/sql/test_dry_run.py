"""Claims about what a dry run leaves for an engineer to go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.job.names import JobDir
from elasticdl.job.values.file import load_values
from elasticdl.model.definition import load_definition
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import run
from keras import layers


def test_the_job_of_a_dry_run_trains_the_module_that_lies_there(tmp_path: Path) -> None:
    """It trained a copy in the values file: what was changed beside it did nothing."""

    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    dry = tmp_path / "dry"
    source = open_source("")
    session = Session(
        source, Registry(tmp_path / "models"), run_job, lambda _: None, dry_run=dry
    )
    # So many short texts are in a file beside the module.
    select = "SELECT i AS x, 'v' || i AS c, i % 2 AS y FROM range(99) s(i)"
    columns = "x, CONCAT(c, x) AS g"
    train = f"{select} TO TRAIN DNNClassifier COLUMN {columns} LABEL y INTO m"
    list(run(session, train))
    source.close()
    (module,) = dry.glob("**/*.py")
    text = module.read_text(encoding="utf-8")
    units = "hidden_units=(128, 64)"
    assert units in text
    module.write_text(text.replace(units, "hidden_units=(3,)"), encoding="utf-8")
    job = load_values(dry / "job.yaml").job
    made = load_definition(job, JobDir(tmp_path / "job")).build_model()
    dense = [one.units for one in made.layers if isinstance(one, layers.Dense)]
    assert dense == [3, 1]
