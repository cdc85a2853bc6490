"""Traces of published workloads: Pollux, Philly, Helios.

Owns the reading of their formats. Called by the verb `simulate`. The files are not the
project's to give away; whoever has one can replay it. Must not run anything.

What a file does not say is chosen here, and told in the trace's `about`: a job may have
from one to twice the workers that it asked for, which is where it begins and what gang
and fixed give it; a worker asks for one GPU.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elasticdl.errors import SpecError
from elasticdl.simulator.trace import Asked, Jobs, Nodes, Trace, Workers

GPU = "nvidia.com/gpu"
_STRETCH = 2
# Pollux's files name the application, and its paper how many GPU hours jobs of that
# kind take: small up to 1, medium up to 10, large up to 100, extra large above.
_GPU_HOURS = {
    "cifar10": 0.5,
    "ncf": 0.5,
    "deepspeech2": 3.0,
    "bert": 3.0,
    "yolov3": 30.0,
    "imagenet": 100.0,
}
_OTHER_GPU_HOURS = 1.0
# Beyond that a file is broken; one such job would be replayed for ever.
_LARGEST = 1e12  # seconds on a clock, or GPUs
_LONGEST = 366 * 86_400.0  # seconds of a job, or of an attempt


@dataclass(frozen=True)
class ImportedJob:
    """One job of a published log."""

    name: str
    at: float  # seconds, on the log's clock
    gpus: int
    work: float  # GPU seconds


@dataclass(frozen=True)
class Fleet:
    """The nodes that an imported workload runs on."""

    nodes: int = 16
    gpus: int = 4


def import_trace(
    kind: str, path: Path, *, fleet: Fleet = Fleet(), most: int = 0
) -> Trace:
    """Return a published workload as a trace; `most` jobs of it, 0 is all.

    Raises SpecError that names the file, the line and what was expected.
    """
    if kind not in IMPORTERS:
        raise SpecError(
            f"--import: got {kind!r}, expected one of {', '.join(sorted(IMPORTERS))}"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # as a spreadsheet writes it
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8 text"
        raise SpecError(f"{path}: got no file that can be read ({reason})") from error
    jobs = sorted(IMPORTERS[kind](text, str(path)), key=lambda job: job.at)
    jobs = [job for job in jobs if job.gpus > 0 and job.work > 0]
    jobs = jobs[:most] if most else jobs
    if not jobs:
        raise SpecError(f"{path}: got no job that uses GPUs, expected at least one")
    try:
        return _trace(kind, path, jobs, fleet)
    except ValidationError as error:
        one = error.errors(include_url=False)[0]
        raise SpecError(
            f"{path}: {one['loc'][-1]}: got {one['input']!r}: {one['msg'].lower()}; "
            "name fewer, or smaller, nodes"
        ) from error


def _trace(kind: str, path: Path, jobs: list[ImportedJob], fleet: Fleet) -> Trace:
    first = jobs[0].at
    cores, memory = 4 * fleet.gpus + 4, f"{32 * fleet.gpus}Gi"
    return Trace(
        name=_plain(path.stem) or kind,
        about=f"{len(jobs)} jobs of {path.name} ({kind}), of 1 to {_STRETCH} times the "
        "workers that they asked for",
        nodes=[
            Nodes(count=fleet.nodes, cpu=cores, memory=memory, extra={GPU: fleet.gpus})
        ],
        jobs=[
            _job(number, job, first, fleet.nodes * fleet.gpus)
            for number, job in enumerate(jobs)
        ],
    )


def _job(number: int, job: ImportedJob, first: float, gpus: int) -> Jobs:
    asked = min(job.gpus, gpus)
    most = max(2, min(_STRETCH * asked, gpus))
    return Jobs(
        name=f"{_plain(job.name)[:30].rstrip('-') or 'job'}-{number}",
        at=job.at - first,
        master=Asked(cpu=0.1, memory="256Mi"),
        workers=Workers(
            cpu=4, memory="16Gi", extra={GPU: 1}, min=1, max=most, replicas=asked
        ),
        work=job.work,
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


# -- formats --------------------------------------------------------------------------


def _rows(
    text: str, source: str, needed: Iterable[str]
) -> list[tuple[str, dict[str, str]]]:
    """Return the rows of a CSV with their places. Raises SpecError."""
    reader = csv.DictReader(io.StringIO(text))
    try:
        return _needed(reader, source, needed)
    except csv.Error as error:
        raise SpecError(f"{source}: got no CSV ({error})") from error


def _needed(
    reader: csv.DictReader[str], source: str, needed: Iterable[str]
) -> list[tuple[str, dict[str, str]]]:
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        came = ",".join(reader.fieldnames or ()) or "nothing"
        raise SpecError(
            f"{source}:1: got the columns {came}, expected {', '.join(missing)} among "
            "them; is it a file of this format?"
        )
    return [(f"{source}:{reader.line_num}", row) for row in reader]


def _number(row: Mapping[str, Any], name: str, place: str) -> float:
    try:
        number = float(row[name])
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise SpecError(f"{place}: {name}: got {row[name]!r}, expected a number")
    return number


def _believed(seconds: float, value: object, place: str, name: str) -> float:
    if seconds > _LONGEST:
        raise SpecError(
            f"{place}: {name}: got {value!r}, expected a year at most; drop the job"
        )
    return seconds


def _time(value: object, place: str, name: str) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (OverflowError, ValueError):
        raise SpecError(
            f"{place}: {name}: got {value!r}, expected a time as 2017-10-09 07:02:30"
        ) from None


def pollux(text: str, source: str) -> list[ImportedJob]:
    """Read a workload of Pollux: name,time,application,num_replicas,batch_size."""
    needed = ("name", "time", "application", "num_replicas", "batch_size")
    return [
        ImportedJob(
            name=row["name"] or "job",
            at=_number(row, "time", place),
            gpus=int(_number(row, "num_replicas", place)),
            work=3600 * _GPU_HOURS.get(row["application"], _OTHER_GPU_HOURS),
        )
        for place, row in _rows(text, source, needed)
    ]


def helios(text: str, source: str) -> list[ImportedJob]:
    """Read a `cluster_log.csv` of Helios."""
    found = []
    for place, row in _rows(
        text, source, ("job_id", "gpu_num", "submit_time", "duration")
    ):
        gpus = int(_number(row, "gpu_num", place))
        took = _number(row, "duration", place)
        work = gpus * _believed(took, row["duration"], place, "duration")
        at = _time(row["submit_time"], place, "submit_time")
        found.append(ImportedJob(f"job-{row['job_id']}", at, gpus, work))
    return found


def philly(text: str, source: str) -> list[ImportedJob]:
    """Read a `cluster_job_log` of Philly: a JSON list of jobs with their attempts."""
    try:
        tree = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise SpecError(f"{source}: got no JSON ({error}), expected a list") from error
    if not isinstance(tree, list):
        raise SpecError(f"{source}: got {type(tree).__name__}, expected a list of jobs")
    return [_philly_job(job, f"{source}: [{n}]") for n, job in enumerate(tree)]


def _philly_job(job: Any, place: str) -> ImportedJob:
    if not isinstance(job, dict) or "submitted_time" not in job:
        raise SpecError(
            f"{place}: got no submitted_time, expected a job with jobid, "
            "submitted_time and attempts"
        )
    try:
        gpus, work = _held(job, place)
    except (AttributeError, TypeError):
        raise SpecError(
            f"{place}: got attempts that cannot be read, expected a list of them, each "
            "with start_time, end_time and detail, a list of {ip, gpus}"
        ) from None
    at = _time(job["submitted_time"], place, "submitted_time")
    return ImportedJob(str(job.get("jobid", "job")), at, gpus, work)


def _held(job: Any, place: str) -> tuple[int, float]:
    """Return how many GPUs a job of Philly held at most, and for how many seconds."""
    gpus, work = 0, 0.0
    for number, attempt in enumerate(job.get("attempts") or []):
        where = f"{place}.attempts[{number}]"
        held = sum(len(one.get("gpus") or ()) for one in attempt.get("detail") or ())
        begin, end = attempt.get("start_time"), attempt.get("end_time")
        gpus = max(gpus, held)
        if begin and end and "None" not in (begin, end):
            took = _time(end, where, "end_time") - _time(begin, where, "start_time")
            work += held * _believed(took, end, where, "end_time")
    return gpus, work


IMPORTERS: dict[str, Callable[[str, str], list[ImportedJob]]] = {
    "pollux": pollux,
    "philly": philly,
    "helios": helios,
}
