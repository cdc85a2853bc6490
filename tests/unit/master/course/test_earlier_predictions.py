"""What becomes of predictions that lie where a job is to write its own."""

import pytest
from elasticdl.errors import DataError
from elasticdl.master.course.earlier_predictions import remove_earlier


def test_files_of_an_earlier_run_go_and_all_others_stay(tmp_path):
    kept = ["notes.txt", "part-1.parquet", "part-000001-of-2.parquet", "my.jsonl"]
    for name in ["part-000001.parquet", "part-000007.jsonl", *kept]:
        (tmp_path / name).touch()
    remove_earlier(tmp_path, [tmp_path.parent / "test.csv"])
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    remove_earlier(tmp_path / "absent", [])


def test_records_that_lie_among_predictions_are_not_removed(tmp_path):
    source = tmp_path / "part-000001.parquet"
    source.touch()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(DataError, match="the records that they are made of"):
        remove_earlier(tmp_path / "link", [source])
    assert source.exists()
