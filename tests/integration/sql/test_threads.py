"""Statements of several threads of one program."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from elasticdl.sql import notebook


@pytest.mark.soak
def test_two_threads_may_train_one_model_and_predict(
    tmp_path: Path,
) -> None:
    def run(number: int) -> int:
        rows = 300 + number
        select = f"SELECT i AS x, i % 2 AS y FROM range({rows}) t(i)"
        place = tmp_path / f"{number}.parquet"
        found = notebook.sql(
            f"{select} TO TRAIN DNNClassifier WITH train.epoch = 1 LABEL y INTO m; "
            f"{select} TO PREDICT '{place}' USING m; "
            f"SELECT count(*), max(x) FROM '{place}'",
            models_dir=tmp_path / "models",
            jobs_dir=tmp_path / "jobs",
        )
        assert found.rows == ((rows, rows - 1),)
        return rows

    with ThreadPoolExecutor(2) as threads:
        numbers = list(threads.map(run, range(2)))
    for number, rows in enumerate(numbers):
        assert pq.read_metadata(tmp_path / f"{number}.parquet").num_rows == rows
    shown = notebook.sql("SHOW MODELS", models_dir=tmp_path / "models")
    assert {row[0] for row in shown.rows} == {"m@1", "m@2"}
