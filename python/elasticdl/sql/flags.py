"""`engine.X` and `runtime.X`: the classic flag `--X`, as it is on a command line.

Owns which flags a statement may give, and what they say together with others. Called by
`sql.attributes` and `sql.running.own`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticdl.job.classic_flags.convert import is_so_anyway, unknown_flag
from elasticdl.job.classic_flags.table import Flag, flags_of
from elasticdl.job.spec.kinds import JobType, Strategy, UpdateMode

Path = tuple[str, ...]
RECORDS, _WAIT, _SERVERS = "records_per_task", "grads_to_wait", "num_ps_pods"
_IMAGE = "worker_image"
_STRATEGY, _MODE, _PS_IMAGE = ("strategy",), ("ps", "mode"), ("ps", "image")
FAMILIES = ("engine", "runtime")


def find(name: str, text: str, verb: str) -> Flag | str:
    """Return a flag, or why there is none; "" where it asks for what is so anyway."""
    kind = JobType.TRAIN if verb == JobType.TRAIN else JobType.PREDICT
    flag = flags_of(kind).get(name)
    if flag is None:
        found = unknown_flag(name, kind)
        hint = found.next_step.replace("`--", "`")
        return f"--{name} is {found.got}; {hint}"
    if flag.refusal:
        return "" if is_so_anyway(flag, text) else f"--{name}: {flag.refusal}"
    return flag


def waits(name: str, value: Any) -> bool:
    """Whether a flag alone sets no field: what it means may be said behind it."""
    return name == RECORDS or (name == _SERVERS and value == 0)


def together(
    flags: Mapping[str, Any], fields: Mapping[Path, Any]
) -> Iterator[tuple[str, Path, Any]]:
    """Yield what else flags say: the flag, a field and its value.

    Args:
        flags: Values of those that are given.
        fields: What is said of the job's fields, by flags and without.
    """
    if flags.get(_WAIT, 0) > 1 and _MODE not in fields:
        yield _WAIT, _MODE, str(UpdateMode.SYNC)
    if _IMAGE in flags and _PS_IMAGE not in fields:
        yield _IMAGE, _PS_IMAGE, flags[_IMAGE]
    if flags.get(_SERVERS) == 0:
        strategy = fields.get(_STRATEGY)
        if strategy == Strategy.PARAMETER_SERVER:
            yield _SERVERS, ("ps", "replicas"), 0  # which it does not take
        elif strategy is None:
            alone = fields.get(("worker", "replicas"), 1) == 1
            chosen = Strategy.LOCAL if alone else Strategy.ALL_REDUCE
            yield _SERVERS, _STRATEGY, str(chosen)


def batches(records: int, size: int | None) -> int | str:
    """Return how many batches a task's records are, or what is wrong with them."""
    if size is None:
        return (
            f"--{RECORDS} needs predict.batch_size beside it: a task is so many whole "
            "batches"
        )
    if records < size or records % size:
        expected = f"a multiple of the size of a batch, {size}"
        return f"--{RECORDS} is {records}; expected {expected}"
    return records // size


def field_of(key: str) -> str:
    """Return the field below `job` that an attribute of TO TRAIN names, or ""."""
    family, _, name = key.partition(".")
    if family.lower() == "job":
        return name
    flag = flags_of(JobType.TRAIN).get(name)
    return flag.field if flag is not None and family.lower() in FAMILIES else ""
