"""WITH: what each attribute means, and what is wrong with those that mean nothing.

Owns the families `model.*`, `train.*`, `validation.*`, `optimizer.*`, `engine.*` and
`runtime.*` (a classic flag), `job.*` (a field of the values file), `predict.*`,
`explain.*` and `summary.*`. Called by `sql.planning`. Must not know columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elasticdl.job.classic_flags.values import FlagValueError
from elasticdl.job.spec.kinds import JobType, UpdateMode
from elasticdl.job.spec.problems import did_you_mean
from elasticdl.job.values.given import wrong_path, wrong_values
from elasticdl.sql import flags
from elasticdl.sql.metrics import METRICS
from elasticdl.sql.models import OWN, ModelKind, is_number, is_whole
from elasticdl.sql.optimizers import (
    COMMON,
    OPTIMIZERS,
    RATE,
    RULES,
    accepted,
    clashes,
    unknown,
)
from elasticdl.sql.plan import SplitPlan
from elasticdl.sql.problems import Problem
from elasticdl.sql.statements import Attribute, Constant, Expression, Listing, Name

# Of the values file, what SQL writes itself.
_WRITTEN = ("kind", "type", "model.definition", "model.files", "model.zoo",
            "data.training", "data.validation", "data.prediction", "data.prepare",
            "data.format", "data.readerParams", "predictionOutput",
            "predictionFormat", "model.dataReader",
            "model.predictionOutputsProcessor", "checkpoint.dir", "checkpoint.keep",
            "export.dir")  # fmt: skip

# Names of parts of a module: of one that SQL makes they are known.
PARTS = ("feed", "loss", "optimizer", "evalMetrics", "callbacks")
_TRAIN = ("train.epoch", "train.epochs", "train.batch_size", "train.optimizer")
_VALIDATION = tuple(
    f"validation.{name}" for name in ("fraction", "key", "order", "select", "metrics")
)
FAMILIES = {
    "train": (*_TRAIN, *_VALIDATION, "optimizer", "model.optimizer"),
    "evaluate": ("validation.metrics", "validation.batch_size"),
    "predict": ("predict.batch_size",),
    "explain": ("summary.plot_type", "explain.num_rows", "explain.seed"),
}


def written(dotted: str) -> str:
    """Return which field below `job` that a statement writes a path sets, or ""."""
    inside = (w for w in _WRITTEN if f"{dotted}.".startswith(f"{w}."))
    around = (w for w in _WRITTEN if w.startswith(f"{dotted}."))
    return next(iter([*inside, *around]), "")


@dataclass(frozen=True)
class Settings:
    """What WITH says, read; what it does not say is the default."""

    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "adam"
    optimizer_params: tuple[tuple[str, Any], ...] = ()
    model_params: tuple[tuple[str, Any], ...] = ()
    num_classes: int = 0
    split: SplitPlan = field(default_factory=SplitPlan)
    metrics: tuple[str, ...] = ()
    fields: tuple[tuple[tuple[str, ...], Any], ...] = ()
    others: tuple[tuple[str, Any], ...] = ()  # explain.*, summary.*

    def other(self, name: str, default: Any) -> Any:
        """Return what an attribute of explain.* says."""
        return dict(self.others).get(name, default)


class Refused(ValueError):  # noqa: N818 - it never leaves this module's callers
    """A value that an attribute does not take; says what it expects."""


def plain(expression: Expression) -> Any:
    """Return the value of an attribute as Python has it."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Name):
        return expression.text
    if isinstance(expression, Listing):
        return [plain(item) for item in expression.items]
    raise Refused("a number, a text, a list or true or false")


def read(
    verb: str, attributes: Sequence[Attribute], model: ModelKind | None
) -> tuple[Settings, list[Problem]]:
    """Return what WITH says in a statement of this verb, and its mistakes."""
    reader = _Reader(verb, model)
    for attribute in attributes:
        reader.take(attribute)
    reader.settle()
    return reader.settings, reader.problems


class _Reader:
    def __init__(self, verb: str, model: ModelKind | None) -> None:
        self._verb = verb
        self._model = model
        self._seen: dict[str, Attribute] = {}
        self._said: dict[str, Attribute] = {}  # By what it means, whatever its name.
        self._flags: dict[str, tuple[Any, Attribute]] = {}  # Classic ones, by name.
        self._checked: list[tuple[tuple[str, ...], Any, Attribute]] = []
        self.settings = Settings()
        self.problems: list[Problem] = []

    def take(self, attribute: Attribute) -> None:
        key = attribute.key
        if key.lower() in self._seen:
            self._problem(attribute, f"`{key}` is there twice; expected it once")
            return
        self._seen[key.lower()] = attribute
        try:
            value = plain(attribute.value)
            self._read(key, value, attribute)
        except Refused as refused:
            at = attribute.value.at
            got = _shown(attribute.value)
            message = f"`{key}` is {got}; expected {refused}"
            self.problems.append(Problem(at, message))

    def settle(self) -> None:
        """Check what several attributes say together."""
        ways = [w for w in ("select", "order", "key") if getattr(self._split(), w)]
        if "select" in ways and (len(ways) > 1 or "validation.fraction" in self._seen):
            first = self._seen["validation.select"]
            self._problem(
                first, "validation.select names all validation rows; expected it alone"
            )
        elif "key" in ways and "order" in ways:
            first = self._seen["validation.order"]
            self._problem(
                first, "validation.order and validation.key exclude each other"
            )
        self._settle_flags()
        self._check_fields()
        self._settle_optimizer()

    def _settle_optimizer(self) -> None:
        """Check what arguments are to the optimizer, which may be named behind them."""
        given = dict(self.settings.optimizer_params)
        wrong = {key: unknown(self.settings.optimizer, key) for key in given}
        strategy = str(dict(self.settings.fields).get(("strategy",), ""))
        for key, told in [*wrong.items(), *clashes(given, strategy)]:
            if told:
                self._problem(self._seen[f"optimizer.{key.lower()}"], told)

    def _settle_flags(self) -> None:
        """Set what classic flags say together with others, as on a command line."""
        given = {name: value for name, (value, _) in self._flags.items()}
        for name, path, value in flags.together(given, dict(self.settings.fields)):
            self._field(path, value, self._flags[name][1])
        if flags.RECORDS in given:
            attribute = self._flags[flags.RECORDS][1]
            known = self._verb == JobType.TRAIN or "training.batchSize" in self._said
            size = self.settings.batch_size if known else None
            batches = flags.batches(given[flags.RECORDS], size)
            if isinstance(batches, str):
                self._problem(attribute, batches)
            else:
                self._field(("training", "batchesPerTask"), batches, attribute)
        limit = ("training", "maxSteps")
        if self.settings.epochs == 0 and not dict(self.settings.fields).get(limit):
            self._problem(
                self._said["training.epochs"],
                "0 epochs have no end; expected 1 or more, or job.training.maxSteps",
            )

    def _check_fields(self) -> None:
        """Tell of values that fields do not take, all of them together.

        What one takes may be another's, as with `ps.mode` and `ps.gradsToWait`.
        """
        expected = wrong_values([(path, value) for path, value, _ in self._checked])
        for path, _, attribute in self._checked:
            if told := expected.get(path):
                got = _shown(attribute.value)
                message = f"`{attribute.key}` is {got}; expected {told}"
                self.problems.append(Problem(attribute.value.at, message))

    def _split(self) -> SplitPlan:
        return self.settings.split

    def _problem(self, attribute: Attribute, message: str) -> None:
        self.problems.append(Problem(attribute.at, message))

    def _claim(self, meaning: str, attribute: Attribute) -> None:
        """Note what an attribute says: of two that say it one would be lost."""
        first = self._said.setdefault(meaning, attribute)
        if first is not attribute:
            place = f"line {first.at.line}, column {first.at.column}"
            self._problem(
                attribute,
                f"`{attribute.key}` says what `{first.key}` says already ({place}); "
                "expected one of them",
            )

    def _set(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    def _read(self, key: str, value: Any, attribute: Attribute) -> None:
        family, _, rest = key.partition(".")
        family = family.lower()
        if family == "job" and rest:
            self._field(tuple(rest.split(".")), value, attribute)
        elif family in flags.FAMILIES and rest:
            self._flag(rest, value, attribute)
        elif self._verb == JobType.TRAIN and (
            family == "optimizer" or key.lower() in _ALSO_OPTIMIZER
        ):
            self._optimizer(rest, value, attribute)
        elif self._verb == JobType.TRAIN and family == "model" and rest:
            self._model_argument(rest, value, attribute)
        elif key.lower() in FAMILIES[self._verb]:
            key = key.lower()
            if key in _MEANINGS:
                self._claim(_MEANINGS[key], attribute)
            _KNOWN[key](self, value)
        else:
            self._problem(attribute, self._no_attribute(key))

    def _no_attribute(self, key: str) -> str:
        if key.lower() in _ALONE:
            example = _ALONE[key.lower()]
            return (
                f"`{key}` alone is no attribute; expected a name behind it: {example}"
            )
        known = [*FAMILIES[self._verb], "job", "engine", "runtime"]
        if self._verb == JobType.TRAIN:
            known += [f"model.{p.name}" for p in self._parameters()]
            known += [f"optimizer.{name}" for name in (*RATE, *COMMON)]
        return f"there is no attribute `{key}`; {did_you_mean(key, known)}"

    def _parameters(self) -> Iterable[Any]:
        return self._model.parameters if self._model else ()

    def _optimizer(self, rest: str, value: Any, attribute: Attribute) -> None:
        if rest.lower() in ("", "name", "optimizer"):
            self._claim("optimizer", attribute)
            found = str(value).lower()
            if found not in OPTIMIZERS:
                raise Refused(
                    f"an optimizer of Keras; {did_you_mean(found, OPTIMIZERS)}"
                )
            self._set(optimizer=found)
            return
        if rest in RULES:
            try:
                value = accepted(rest, value)
            except ValueError as error:
                raise Refused(str(error)) from error
        self._set(optimizer_params=(*self.settings.optimizer_params, (rest, value)))

    def _model_argument(self, name: str, value: Any, attribute: Attribute) -> None:
        if name in ("num_classes", "n_classes"):
            self._claim("num_classes", attribute)
            if not is_whole(value, 2):
                raise Refused("a whole number, 2 or more")
            self._set(num_classes=value)
            if self._model is None or self._model.family != OWN:
                return
        if self._model is not None and self._model.family != OWN:
            known = {one.name: one for one in self._model.parameters}
            if name not in known:
                hint = did_you_mean(name, [*known, "num_classes", "optimizer"])
                model = self._model.name
                self._problem(attribute, f"{model} has no `model.{name}`; {hint}")
                return
            if not known[name].check(value):
                raise Refused(known[name].expected)
        self._claim(f"model.params.{name}", attribute)
        value = tuple(value) if isinstance(value, list) else value
        self._set(model_params=(*self.settings.model_params, (name, value)))

    def _flag(self, name: str, value: Any, attribute: Attribute) -> None:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        flag = flags.find(name, text, self._verb)
        if isinstance(flag, str):
            if flag:
                self._problem(attribute, flag)
            return
        try:
            parsed = flag.parse(text)
        except FlagValueError as error:
            raise Refused(str(error.expected)) from error
        self._flags[name] = (parsed, attribute)
        if name == "use_async":
            parsed = str(UpdateMode.ASYNC if parsed else UpdateMode.SYNC)
        if flag.field == ".".join(_PARAMS) and self._verb == JobType.TRAIN:
            for argument, said in parsed.items():
                self._model_argument(argument, said, attribute)
        elif not flags.waits(name, parsed):
            self._field(tuple(flag.field.split(".")), parsed, attribute)

    def _field(self, path: tuple[str, ...], value: Any, attribute: Attribute) -> None:
        dotted = ".".join(path)
        if path[:2] == _PARAMS and len(path) > 2 and self._verb == JobType.TRAIN:
            self._model_argument(".".join(path[2:]), value, attribute)
            return
        own = written(dotted)
        if own:
            self._problem(
                attribute, f"job.{own} is what the statement makes; take it out"
            )
            return
        wrong = wrong_path(path) or self._of_its_module(path)
        if wrong:
            self._problem(attribute, wrong)
            return
        self._claim(dotted, attribute)
        self._checked.append((path, value, attribute))
        named = {
            "training.epochs": "epochs",
            "training.batchSize": "batch_size",
        }.get(dotted)
        if named == "batch_size":
            self._batch_size(value)
        elif named:
            self._set(**{named: value})
        else:
            self._set(fields=(*self.settings.fields, (path, value)))

    def _of_its_module(self, path: tuple[str, ...]) -> str:
        """Return why a field is not for this statement's module, or ""."""
        part = path[1] if path[0] == "model" and len(path) > 1 else ""
        own = self._model is not None and self._model.family == OWN
        if self._verb != JobType.TRAIN and part in (*PARTS, "params"):
            return f"job.model.{part} is as in the model's training; take it out"
        if self._verb == JobType.TRAIN and part in PARTS and not own:
            return (
                f"job.model.{part} names a part of a module of your own, and this "
                "model's is made of the statement; take it out"
            )
        return ""

    def _batch_size(self, value: int) -> None:
        self._set(batch_size=value)
        if self._verb != JobType.TRAIN:
            # The values file of a training is there already: this is laid over it.
            field = (("training", "batchSize"), value)
            self._set(fields=(*self.settings.fields, field))

    # What single attributes say.

    def epochs(self, value: Any) -> None:
        if not is_whole(value):
            raise Refused("a whole number, 1 or more")
        self._set(epochs=value)

    def batch_size(self, value: Any) -> None:
        if not is_whole(value):
            raise Refused("a whole number, 1 or more")
        self._batch_size(value)

    def fraction(self, value: Any) -> None:
        if not is_number(value) or not 0 <= value < 1:
            raise Refused("a number from 0 to below 1")
        self._set(split=replace(self.settings.split, fraction=float(value)))

    def split_word(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or not value.strip():
            what = "a query, in quotes" if name == "select" else "a column's name"
            raise Refused(what)
        changed: Any = {name: value}
        self._set(split=replace(self.settings.split, **changed))

    def metrics(self, value: Any) -> None:
        names = value if isinstance(value, list) else str(value).split(",")
        found = []
        for name in (str(one).strip() for one in names):
            metric = METRICS.get(name.lower().replace("_", ""))
            if metric is None:
                hint = did_you_mean(name, sorted(set(METRICS.values())))
                raise Refused(f"metrics, as AUC,Accuracy; {hint}")
            found.append(metric)
        self._set(metrics=tuple(dict.fromkeys(found)))

    def other(self, name: str, check: Callable[[Any], bool], expected: str) -> Any:
        def take(value: Any) -> None:
            if not check(value):
                raise Refused(expected)
            self._set(others=(*self.settings.others, (name, value)))

        return take


_PARAMS = ("model", "params")  # Of the values file, which model.* is.
_ALSO_OPTIMIZER = ("model.optimizer", "train.optimizer")
# Attributes that say what another one or a field says.
_MEANINGS = {
    "train.epoch": "training.epochs",
    "train.epochs": "training.epochs",
    "train.batch_size": "training.batchSize",
    "validation.batch_size": "training.batchSize",
    "predict.batch_size": "training.batchSize",
}
# Families without a name behind them, each with an example.
_ALONE = {
    "job": "job.worker.replicas = 2",
    "engine": "engine.num_workers = 2",
    "runtime": "runtime.num_workers = 2",
    "model": "model.hidden_units = [64, 32]",
    "train": "train.epoch = 5",
    "validation": "validation.fraction = 0.1",
    "predict": "predict.batch_size = 512",
    "explain": "explain.num_rows = 500",
    "summary": "summary.plot_type = 'bar'",
}


def _one(name: str, check: Callable[[Any], bool], expected: str) -> Any:
    return lambda reader, value: reader.other(name, check, expected)(value)


_KNOWN: dict[str, Callable[[_Reader, Any], None]] = {
    "train.epoch": _Reader.epochs,
    "train.epochs": _Reader.epochs,
    "train.batch_size": _Reader.batch_size,
    "validation.fraction": _Reader.fraction,
    "validation.key": lambda reader, value: reader.split_word("key", value),
    "validation.order": lambda reader, value: reader.split_word("order", value),
    "validation.select": lambda reader, value: reader.split_word("select", value),
    "validation.metrics": _Reader.metrics,
    "validation.batch_size": _Reader.batch_size,
    "predict.batch_size": _Reader.batch_size,
    "summary.plot_type": _one("plot_type", lambda v: v == "bar", "'bar'"),
    "explain.num_rows": _one("num_rows", is_whole, "a whole number, 1 or more"),
    "explain.seed": _one("seed", lambda v: is_whole(v, 0), "a whole number, 0 or more"),
}


def _shown(expression: Expression) -> str:
    try:
        value = plain(expression)
    except Refused:
        return "a call"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if not isinstance(value, list) else json.dumps(value)
