"""Traces: what is wrong with a file, and published workloads."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from elasticdl.errors import SpecError
from elasticdl.simulator.imports import Fleet, import_trace
from elasticdl.simulator.reading import dump_trace, load_trace, parse_trace, shipped

GOOD = "nodes: [{cpu: 4}]\njobs:\n  - {name: one, work: 10}\n"


@pytest.mark.parametrize("name", shipped())
def test_each_shipped_trace_can_be_read_and_says_what_it_shows(name: str) -> None:
    trace = load_trace(name)
    assert trace.name == name
    assert trace.about
    assert trace.all_jobs()


NODE_FAILS = "failures: [{at: 1, kind: node, node: x}]\nnodes:"
GPUS = "work: 10, workers: {extra: {gpu: 1}}"
LARGE = "work: 10, workers: {cpu: 3.5, memory: 2000Gi}"
FIRE = "failures: [{at: 1, kind: fire}]\nnodes:"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cpu: 4", "cpu: lots", "t.yaml:1:15: nodes[0].cpu: got 'lots', expected a"),
        ("cpu: 4", "cpus: 4", "nodes[0].cpus: got an unknown key"),
        ("cpu: 4", "cpus: 4", "did you mean `cpu`?"),
        ("work: 10", "work: -1", "t.yaml:3:23: jobs[0].work: got -1"),
        (", work: 10", "", "until: got nothing, expected the second"),
        ("name: one, ", "", "jobs[0].name: got nothing"),
        (
            "work: 10",
            "work: 1, workers: {min: 3}",
            "replicas: got 1, expected from min",
        ),
        ("work: 10", "work: 1, ps: {replicas: 100000}", "got 100000, expected"),
        ("cpu: 4", "cpu: 1e308", "nodes[0].cpu: got 1e+308, expected"),
        ("work: 10", "work: 1, workers: {priority: lo}", "got 'lo', expected one of"),
        ("jobs:", "jobs:\n  - {name: one, work: 1}", "got 'one' twice"),
        ("nodes:", NODE_FAILS, "failures[0].node: got 'x', expected a node, as 'nod"),
        ("work: 10", LARGE, "jobs[0].workers: got more than any node has, expected"),
        ("work: 10", GPUS, "jobs[0].workers.extra: got 'gpu', expected what a node"),
        ("nodes:", FIRE, "failures[0].kind: got 'fire', expected one of `node`"),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, says: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(SpecError) as error:
        parse_trace(text, source="t.yaml")
    assert says in str(error.value)
    assert "t.yaml:" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "? [1, 2]\n: 3",
        "x: " + "[" * 3000 + "]" * 3000,
        "x: " + "9" * 5000,
    ],
)
def test_yaml_that_no_trace_can_be_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"t\.yaml: got text that cannot be read"):
        parse_trace(text, source="t.yaml")


def test_what_fits_nowhere_may_wait_to_the_end_that_a_trace_has() -> None:
    text = GOOD.replace("work: 10", "work: 10, workers: {cpu: 5}")
    assert parse_trace(f"{text}until: 60\n", source="t.yaml").until == 60.0


def test_a_file_that_is_not_there_is_told_with_the_names_that_are() -> None:
    with pytest.raises(SpecError, match=r"no-such: got no file .* known are: 20-jobs"):
        load_trace("no-such")


def test_what_is_random_is_the_seeds() -> None:
    day = load_trace("day")
    assert day.all_jobs() == load_trace("day").all_jobs()
    other = day.model_copy(update={"seed": 2})
    assert other.all_jobs() != day.all_jobs()


# -- published workloads ---------------------------------------------------------------

POLLUX = """\
name,time,application,num_replicas,batch_size
cifar10-3,130,cifar10,1,128
imagenet-1,90,imagenet,8,200
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration
77,u1,a,2,8,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:10:20,600
78,u1,a,0,8,1,COMPLETED,2020-04-01 00:00:12,2020-04-01 00:00:20,2020-04-01 00:10:20,600
"""
PHILLY = """\
[{"status": "Pass", "vc": "a", "jobid": "application_1_0001", "user": "u",
  "submitted_time": "2017-10-09 07:01:51",
  "attempts": [
    {"start_time": "2017-10-09 07:02:30", "end_time": "2017-10-09 07:12:30",
     "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]},
                {"ip": "m2", "gpus": ["gpu0"]}]}]},
 {"status": "Killed", "vc": "a", "jobid": "application_1_0002", "user": "u",
  "submitted_time": "2017-10-09 07:05:00", "attempts": []}]
"""
IMAGENET = ("imagenet-1-0", 0, 8, 360_000)
CIFAR = ("cifar10-3-1", 40, 1, 1800)


@pytest.mark.parametrize(
    ("kind", "text", "jobs"),
    [
        ("pollux", POLLUX, [IMAGENET, CIFAR]),
        ("helios", HELIOS, [("job-77-0", 0, 2, 1200)]),
        ("philly", PHILLY, [("application-1-0001-0", 0, 3, 1800)]),
    ],
)
def test_a_published_workload_becomes_a_trace(
    kind: str, text: str, jobs: list[tuple[str, float, int, float]], tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text(text)
    trace = import_trace(kind, file, fleet=Fleet(nodes=2, gpus=8))
    made = [(j.name, j.at, j.workers.replicas, j.work) for j in trace.all_jobs()]
    assert made == jobs
    assert trace.measured == "nvidia.com/gpu"
    assert parse_trace(dump_trace(trace), source="saved.yaml") == trace


NO_TIME = HELIOS.replace("2020-04-01 00:00:10", "?")
NO_LIST = PHILLY.replace('"detail": [', '"detail": 5, "other": [')
CENTURIES = PHILLY.replace("2017-10-09 07:12:30", "2917-10-09 07:13:00")
EARLY = HELIOS.replace("2020-04-01 00:00:10", "0001-01-01")


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("pollux", "name,time\na,1\n", "log:1: got the columns name,time, expected"),
        ("pollux", POLLUX.replace("130", "soon"), "log:2: time: got 'soon', expected"),
        ("helios", NO_TIME, "submit_time: got '?', expected a time"),
        ("philly", "{}", "got dict, expected a list of jobs"),
        ("philly", "[{}]", "[0]: got no submitted_time, expected a job"),
        ("philly", "no", "got no JSON"),
        ("helios", HELIOS.replace("a,2", "a,0"), "got no job that uses GPUs"),
        ("pollux", POLLUX.replace("130", "nan"), "log:2: time: got 'nan', expected"),
        ("pollux", POLLUX.replace("net,8,", "net,inf,"), "num_replicas: got 'inf'"),
        ("pollux", POLLUX.replace("net,8,", "net,1e300,"), "num_replicas: got '1e300'"),
        ("helios", HELIOS.replace(",600", ",nan"), "duration: got 'nan', expected"),
        ("helios", HELIOS.replace(",600", ",1e12"), "duration: got '1e12', expected a"),
        ("philly", CENTURIES, "end_time: got '2917-10-09 07:13:00', expected a year"),
        ("helios", EARLY, "submit_time: got '0001-01-01', expected a time"),
        ("philly", NO_LIST, "[0]: got attempts that cannot be read"),
        ("philly", "[" * 100_000, "got no JSON"),
    ],
)
def test_a_file_of_another_format_is_refused(
    kind: str, text: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        import_trace(kind, file)
    assert says in str(error.value)
    assert str(file) in str(error.value)


def test_a_field_that_is_too_long_for_a_csv_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(POLLUX.replace("cifar10-3", "x" * 200))
    before = csv.field_size_limit(64)
    try:
        with pytest.raises(SpecError, match="log: got no CSV"):
            import_trace("pollux", file)
    finally:
        csv.field_size_limit(before)


SHEET = "name,time,application,num_replicas,batch_size\na,0,cifar10,200000,128\n"


def test_a_file_of_a_spreadsheet_begins_with_a_mark_that_is_no_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sheet.csv"
    file.write_text(SHEET, encoding="utf-8-sig")
    assert len(import_trace("pollux", file).jobs) == 1


@pytest.mark.parametrize("fleet", [Fleet(100_000, 8), Fleet(2, 10**8)])
def test_nodes_that_no_trace_has_are_refused_in_a_sentence(
    tmp_path: Path, fleet: Fleet
) -> None:
    file = tmp_path / "big.csv"
    file.write_text(SHEET)
    with pytest.raises(SpecError, match="name fewer, or smaller, nodes"):
        import_trace("pollux", file, fleet=fleet)
