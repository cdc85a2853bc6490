"""Classic flags into a values file: the mapping, and the rules between flags.

Owns what a whole classic command line means. Called by `cli.options.flags`. Must not
know argparse; the flags come as pairs of name and text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.job.chart.sections import StateValues
from elasticdl.job.classic_flags.table import (
    FLAGS,
    Flag,
    GivenFlag,
    flag_of_field,
    flags_of,
)
from elasticdl.job.classic_flags.values import FlagValueError, reader_format
from elasticdl.job.spec.job import MAX_NAME_LENGTH, JobType
from elasticdl.job.spec.problems import Problem, did_you_mean, spec_error
from elasticdl.job.values.checking import Document, find_problems, validate
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.overrides import Override, split_path
from elasticdl.job.values.positions import Positions


@dataclass(frozen=True)
class ConvertedFlags:
    """The values of a classic command line; `comments` explain what is not obvious."""

    values: ValuesFile
    comments: dict[str, str]


def values_from_flags(
    given: Sequence[GivenFlag], verb: JobType, *, also: Sequence[Problem] = ()
) -> ConvertedFlags:
    """Return the values equivalent to a classic command line.

    Raises SpecError that names every flag that is unknown, refused or wrong; `also`
    are mistakes that the parser found.
    """
    conversion = _Conversion(verb, also)
    for flag in given:
        conversion.take(flag)
    conversion.settle()
    return conversion.finish()


def unknown_flag(name: str, verb: JobType) -> Problem:
    """Return the problem of a flag unknown to `elasticdl <verb>`."""
    others = sorted({flag.verbs[0] for flag in FLAGS if flag.name == name})
    if others:
        expected = f"a flag of `elasticdl {verb}`"
        return Problem(
            f"--{name}", f"a flag of `elasticdl {others[0]}` alone", expected,
            "take it out",
        )  # fmt: skip
    known = [flag.name for flag in flags_of(verb).values() if not flag.refusal]
    hint = did_you_mean(name, known)
    if not hint.startswith("did"):
        hint = f"`elasticdl {verb} --help` lists them"
    return Problem(
        f"--{name}", "an unknown flag", f"a flag of `elasticdl {verb}`",
        hint.replace("`", "`--", 1) if hint.startswith("did") else hint,
    )  # fmt: skip


def is_so_anyway(flag: Flag, text: str) -> bool:
    """Whether a flag that is refused asks for how ElasticDL works in any case."""
    aliases = {"yes": "true", "t": "true", "y": "true", "no": "false"}
    plain = aliases.get(text.lower(), text.lower())
    return flag.always is not None and plain == flag.always.lower()


def job_name(definition: str) -> str:
    """Return a job name from the model's: `mnist.cnn.custom_model`: `mnist-cnn`."""
    parts = definition.split(".")[:-1] or definition.split(".")
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    unique: list[str] = []
    for word in filter(None, words):
        if unique and word.startswith(unique[-1]):
            unique[-1] = word
        else:
            unique.append(word)
    return "-".join(unique)[:MAX_NAME_LENGTH].strip("-") or "job"


class _Conversion:
    def __init__(self, verb: JobType, problems: Sequence[Problem]) -> None:
        self._verb = verb
        self._known = flags_of(verb)
        self._given: dict[str, GivenFlag] = {}
        self._parsed: dict[str, Any] = {}
        self._job: dict[str, Any] = {"type": str(verb), "model": {}}
        self._chart: dict[str, Any] = {}  # its keys beside `job:`
        self._sources: list[Override] = []
        self._problems = list(problems)
        self._comments: dict[str, str] = {}

    def take(self, given: GivenFlag) -> None:
        flag = self._known.get(given.name)
        if flag is None:
            self._problems.append(unknown_flag(given.name, self._verb))
        elif flag.refusal:
            self._refuse(flag, given)
        elif given.name in self._given:
            self._wrong(given, "it a second time", "each flag once", "remove one")
        else:
            self._given[given.name] = given
            self._parse(flag, given)

    def _refuse(self, flag: Flag, given: GivenFlag) -> None:
        text = "true" if given.text is None else given.text
        if is_so_anyway(flag, text):
            return
        expected = "it left out"
        if flag.always is not None:
            expected += f", or {flag.always}, as it always is"
        self._problems.append(
            Problem(f"--{flag.name}", repr(text), expected, flag.refusal)
        )

    def _parse(self, flag: Flag, given: GivenFlag) -> None:
        text = given.text if given.text is not None else "true"
        try:
            value = flag.parse(text)
        except FlagValueError as error:
            self._wrong(given, repr(text), error.expected, error.next_step)
            return
        self._parsed[flag.name] = value
        if flag.name not in ("records_per_task", "use_async"):
            self._set(flag.field, value, given)
        if flag.note:
            self._comments[f"job.{flag.field}"] = f"--{flag.name}: {flag.note}"

    def settle(self) -> None:
        """Apply the rules that need more than one flag."""
        self._settle_strategy()
        self._settle_mode()
        self._settle_portions()
        self._settle_reader()
        self._settle_state()
        if "worker_image" in self._parsed and "ps_image" not in self._parsed:
            self._set("ps.image", self._parsed["worker_image"])
        if self._parsed.get("num_epochs") == 0:
            self._comments["job.training.epochs"] = "endless"
        if "job_name" not in self._given:
            definition = str(self._parsed.get("model_def", ""))
            self._set("name", job_name(definition))
            self._comments["job.name"] = "made of --model_def"

    def finish(self) -> ConvertedFlags:
        tree = {"kind": "job", "job": self._job, **self._chart}
        document = Document(tree, "flags", Positions(), tuple(self._sources))
        found = find_problems(document)
        broken = {problem.path.removeprefix("--") for problem in self._problems}
        for problem in found:
            named = self._named_by_flag(problem)
            if named.path.removeprefix("--") not in broken:
                self._problems.append(named)
        if self._problems:
            raise spec_error(self._problems)
        return ConvertedFlags(validate(tree), self._comments)

    def _named_by_flag(self, problem: Problem) -> Problem:
        """Name the flag in a problem instead of the field's path."""
        if not problem.place.startswith("flags:"):
            return problem
        flag = flag_of_field(problem.path.removeprefix("job."), self._verb)
        path = f"--{flag.name}" if flag is not None else problem.path
        return replace(problem, path=path, place="")

    def _settle_strategy(self) -> None:
        strategy = self._parsed.get("distribution_strategy")
        if self._parsed.get("num_ps_pods") != 0:
            return
        if strategy == "parameterServer":
            self._wrong(
                self._given["num_ps_pods"], "0", "1 or more with parameter servers",
                "leave it out, or write --distribution_strategy=AllreduceStrategy",
            )  # fmt: skip
        elif strategy is None:
            alone = self._parsed.get("num_workers", 1) == 1
            chosen = "local" if alone else "allReduce"
            self._set("strategy", chosen, self._given["num_ps_pods"])
        self._job["ps"].pop("replicas")
        if not self._job["ps"]:
            del self._job["ps"]

    def _settle_mode(self) -> None:
        use_async = self._parsed.get("use_async")
        wait = self._parsed.get("grads_to_wait")
        several = wait is not None and wait > 1
        if use_async and several:
            self._wrong(
                self._given["grads_to_wait"], str(wait), "it left out with --use_async",
                "asynchronous PS apply each gradient as it comes; take one of them out",
            )  # fmt: skip
        if use_async is not None:
            mode = "async" if use_async else "sync"
            self._set("ps.mode", mode, self._given["use_async"])
        elif several:
            self._set("ps.mode", "sync", self._given["grads_to_wait"])
            self._comments["job.ps.mode"] = "--grads_to_wait above 1"
        elif wait is not None:
            self._comments["job.ps.gradsToWait"] = "counts in sync mode alone"

    def _settle_portions(self) -> None:
        records = self._parsed.get("records_per_task")
        if records is None:
            return
        given = self._given["records_per_task"]
        batch = self._parsed.get("minibatch_size", 64)
        if "num_minibatches_per_task" in self._given:
            self._wrong(
                given, str(records), "it left out with --num_minibatches_per_task",
                "both set the size of a task; take one of them out",
            )  # fmt: skip
        elif batch <= 0 or records % batch:
            self._wrong(
                given, str(records), f"a multiple of --minibatch_size, {batch}",
                "a task is so many whole batches",
            )  # fmt: skip
        else:
            self._set("training.batchesPerTask", records // batch, given)

    def _settle_reader(self) -> None:
        params = self._parsed.get("data_reader_params", {})
        if "reader_type" not in params:
            return
        given = self._given["data_reader_params"]
        try:
            self._set("data.format", reader_format(params.pop("reader_type")), given)
        except FlagValueError as error:
            self._wrong(given, repr(given.text), error.expected, error.next_step)

    def _settle_state(self) -> None:
        """Use the first claim of --volume for the job's folder too.

        One that is mounted where the chart mounts its own takes its place anyway.
        """
        volumes = self._parsed.get("volume", [])
        claims = [
            one
            for one in volumes
            if "claimName" in one and "mountPath" in one and "subPath" not in one
        ]
        own = StateValues().mount_path
        taken = any(one.get("mountPath") == own for one in volumes)
        if claims and not taken:
            self._chart["state"] = {
                key: claims[0][key] for key in ("claimName", "mountPath")
            }
            self._comments["state"] = "--volume: its first claim holds the job's folder"

    def _set(self, field: str, value: Any, given: GivenFlag | None = None) -> None:
        *around, key = split_path(field)
        inner = self._job
        for part in around:
            inner = inner.setdefault(str(part), {})
        inner[str(key)] = value
        if given is not None:
            path = ("job", *split_path(field))
            self._sources.append(Override(path, value, given.written))

    def _wrong(self, given: GivenFlag, got: str, expected: str, next_step: str) -> None:
        self._problems.append(Problem(f"--{given.name}", got, expected, next_step))
