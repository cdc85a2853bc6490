"""The record of what was submitted from this machine."""

from elasticdl.client.cluster.records import Record, forget, read_records, remember


def record(job="digits", namespace="ml", submitted=1.0):
    return Record(job, namespace, "kind", submitted)


def test_the_newest_submission_comes_first_and_a_job_once(tmp_path):
    remember(tmp_path / "jobs", record())
    remember(tmp_path / "jobs", record("mnist"))
    remember(tmp_path / "jobs", record(submitted=2.0))
    assert read_records(tmp_path / "jobs") == [record(submitted=2.0), record("mnist")]


def test_a_job_that_is_gone_is_forgotten(tmp_path):
    remember(tmp_path, record())
    remember(tmp_path, record(namespace="other"))
    forget(tmp_path, record(submitted=9.0))
    assert read_records(tmp_path) == [record(namespace="other")]


def test_a_broken_file_counts_as_empty(tmp_path):
    assert read_records(tmp_path) == []
    (tmp_path / ".in-clusters.json").write_text('[{"job": 1}]')
    assert read_records(tmp_path) == []
