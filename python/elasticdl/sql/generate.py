"""From a plan and its statistics to the Keras module and the values file.

Owns the module's outline and the values file's fields. Called by `sql.running`. Pure;
the parts of the module are in `sql.writing`. Must not import Keras.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from elasticdl.job.spec.kinds import Strategy
from elasticdl.job.values.checking import validate
from elasticdl.job.values.file import dump_values, parse_values
from elasticdl.sql import metrics as metrics_of
from elasticdl.sql.models import OWN
from elasticdl.sql.optimizers import OPTIMIZERS
from elasticdl.sql.plan import (
    LABEL_FEATURE,
    NULL_INTEGER,
    NULL_TEXT,
    NUMBER,
    Generated,
    Head,
    Measured,
    Places,
    Statistics,
    Stored,
    TrainPlan,
)
from elasticdl.sql.writing import helpers, networks
from elasticdl.sql.writing.encodings import EncodingWriter
from elasticdl.sql.writing.text import (
    call,
    comment,
    joined,
    listing,
    literal,
    statement_comment,
)

_DTYPES = {Stored.FLOAT: "", Stored.INTEGER: "int64", Stored.TEXT: "string"}
_MOST_SHOWN_CLASSES = 20
_VOCABULARIES = "VOCABULARIES"  # The constant of a module with their folder.
_MANY_WORKERS = ("ps", "allReduce")
# Of `job.model`: a module's own reader would read other rows than the statement's.
OWN_ROWS = {"dataReader": ""}


def generate(plan: TrainPlan, statistics: Statistics, places: Places) -> Generated:
    """Return the module and the values file of a training."""
    writer = EncodingWriter(plan, statistics)
    parts = networks.write_columns(writer, plan.model.family, plan.features)
    name = re.sub(r"\W", "_", plan.name)
    module = _module(plan, statistics, places, writer, parts)
    files = {f"sql/{name}.py": module}
    files |= {f"sql/{file}": text for file, text in writer.files.items()}
    values = dump_values(validate(_tree(plan, places, name, files)))
    path = f"sql/{name}.py"
    return Generated(
        module, path, values, {k: v for k, v in files.items() if k != path}
    )


def generate_own(
    plan: TrainPlan,
    statistics: Statistics,
    places: Places,
    *,
    files: Mapping[str, str],
    classic: bool,
) -> Generated:
    """Return the same for a model of one's own, of which `files` are the zoo's.

    A function gets encoded columns by group from a generated module. A classic module
    is the job's own: it gets the columns by name, as they lie in the shards.
    """
    definition = plan.model.definition
    if not classic:
        made = generate(plan, statistics, places)
        values = parse_values(made.values, source="the statement")[0]
        assert values is not None  # noqa: S101 - `generate` validated it
        tree = values.job.document()
        tree["model"]["files"] = {**files, **tree["model"]["files"]}
        text = dump_values(validate({"kind": "job", "job": tree}))
        return replace(made, values=text)
    path = "/".join(definition.split(".")[:-1]) + ".py"
    name = re.sub(r"\W", "_", plan.name)
    tree = _tree(plan, places, name, files)
    tree["job"]["model"].update({"definition": definition, **OWN_ROWS})
    others = {k: v for k, v in files.items() if k != path}
    return Generated(files[path], path, dump_values(validate(tree)), others)


def _module(
    plan: TrainPlan,
    statistics: Statistics,
    places: Places,
    writer: EncodingWriter,
    parts: Mapping[str, list[str]],
) -> str:
    family = plan.model.family
    used = set(writer.helpers)
    if family != "linear":
        used.add("joined")
    blocks = [_head(plan, statistics, writer, places, used)]
    blocks += [_model(plan, statistics), _encode(plan, writer, parts)]
    blocks += helpers.texts(used)
    if family in ("linear", "wide_and_deep", "deepfm"):
        blocks.append(networks.SUMMED)
    if family == OWN:
        blocks.append(networks.CHECKED)
        if plan.label.head is not Head.NUMBER:
            blocks.append(networks.REFUSE_LOGITS)
    return joined(blocks)


def _head(
    plan: TrainPlan,
    statistics: Statistics,
    writer: EncodingWriter,
    places: Places,
    used: set[str],
) -> str:
    """Return docstring, statement, imports and constants."""
    kind = {Head.NUMBER: "regression", Head.BINARY: "two classes"}.get(
        plan.label.head, "classes"
    )
    title = f"{plan.model.name}: {kind}, made by `elasticdl sql`; yours to change."
    lines = [f'"""{title}"""']
    if plan.statement:
        lines += ["", "# The statement:", statement_comment(plan.statement)]
    lines.append(
        comment(f"Numbers are statistics of its {statistics.num_rows:,} training rows.")
    )
    lines.append("")
    reads = writer.files or {"read_vocabulary", "read_integers"} & used
    if reads:
        lines += ["from pathlib import Path", ""]
    lines.append("import keras")
    if reads:
        lines.append("import numpy as np")
    if used & set(helpers.LAYERS):
        lines.append("import tensorflow as tf")
    named = ["from keras import layers, ops"]
    if plan.model.family == OWN:
        module, _, function = plan.model.definition.rpartition(".")
        # A folder may be called as a variable here: `model`, `layers`, `metrics`.
        name = function if function == "own" else f"{function} as own"
        named.append(f"from {module} import {name}")
    lines += [*sorted(named, key=str.lower), ""]
    lines += _constants(plan, statistics, writer, places, used)
    lines += _thresholds(plan, statistics)
    return "\n".join(lines)


def _constants(
    plan: TrainPlan,
    statistics: Statistics,
    writer: EncodingWriter,
    places: Places,
    used: set[str],
) -> list[str]:
    lines = []
    if used & set(helpers.OF_NULL_INTEGER):
        lines.append(f"NULL_INTEGER = -(2**63)  # {NULL_INTEGER} stands for NULL")
    if used & set(helpers.OF_NULL_TEXT):
        lines.append(f"NULL_TEXT = {literal(NULL_TEXT)}  # the same for text")
    if "Numbers" in used:
        lines.append(f'NUMBER = r"{NUMBER}"  # in a text')
    if writer.files:
        lines.append("FOLDER = Path(__file__).parent")
    if writer.large_files:
        lines.append(f"{_VOCABULARIES} = {literal(places.vocabularies)}")
    classes = _classes(plan, statistics)
    if classes:
        listed = [literal(value) for value in classes[:_MOST_SHOWN_CLASSES]]
        if len(classes) <= _MOST_SHOWN_CLASSES:
            lines.append(
                comment(f"{plan.label.column}: what the model says is a place in here.")
            )
            lines.append(listing("CLASSES = ", listed, indent=0))
    outputs = _num_outputs(plan, statistics)
    lines.append(f"OUTPUTS = {outputs}")
    return lines


def with_vocabularies_in(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return a model's files, which look for large vocabularies in another folder."""
    line = f"{_VOCABULARIES} = {literal(folder)}"
    there = re.compile(rf"^{_VOCABULARIES} = .*/vocabularies.$", re.MULTILINE)
    return {
        # Files of the user's own have other folders.
        name: there.sub(lambda _: line, text) if name.startswith("sql/") else text
        for name, text in files.items()
    }


def _thresholds(plan: TrainPlan, statistics: Statistics) -> list[str]:
    chosen = metrics_of.chosen(head(plan, statistics), plan.metrics)
    return [metrics_of.THRESHOLDS] if metrics_of.needs_thresholds(chosen) else []


def _classes(plan: TrainPlan, statistics: Statistics) -> list[Any]:
    if plan.label.head is Head.NUMBER:
        return []
    if plan.label.classes:
        return list(plan.label.classes)
    try:
        found = statistics.of(Measured(plan.label.column))
    except KeyError:
        return []
    return sorted(entry.value for entry in found.vocabulary)


def _num_classes(plan: TrainPlan, statistics: Statistics) -> int:
    if plan.label.num_classes:
        return plan.label.num_classes
    found = statistics.of(Measured(plan.label.column))
    return found.vocabulary_size or len(found.vocabulary)


def _num_outputs(plan: TrainPlan, statistics: Statistics) -> int:
    if head(plan, statistics) is Head.CLASSES:
        return _num_classes(plan, statistics)
    return 1


def head(plan: TrainPlan, statistics: Statistics) -> Head:
    """Return the head by all classes, of which the first rows may not have had all."""
    if plan.label.head is Head.NUMBER:
        return Head.NUMBER
    return Head.CLASSES if _num_classes(plan, statistics) > 2 else Head.BINARY


def _model(plan: TrainPlan, statistics: Statistics) -> str:
    """Return the function that makes the compiled model."""
    family = plan.model.family
    signature = networks.SIGNATURES[family]
    lines = [call("def model", [signature] if signature else [], ":", indent=0)]
    lines.append('    """Return the compiled model; it takes the query\'s columns."""')
    inputs = [
        _input(column.feature, _DTYPES[column.stored], column.longest or 1)
        for column in plan.columns
    ]
    lines.append(listing("inputs = ", inputs, indent=4, signs="{}"))
    if family in ("deepfm",):
        lines.append("    columns = encode(inputs, embedding_dim)")
    else:
        lines.append("    columns = encode(inputs)")
    if family == OWN:
        lines += _OWN
    else:
        lines.append(networks.NETWORKS[family].rstrip("\n"))
        lines += _output(plan, statistics)
    lines.append("    network = keras.Model(inputs, output)")
    if family == OWN and plan.label.head is not Head.NUMBER:
        lines.append("    refuse_logits(network)")
    lines.append(_compile(plan, statistics))
    lines.append("    return network")
    return "\n".join(lines)


def _input(feature: str, dtype: str, size: int) -> str:
    name = literal(feature)
    arguments = [f"({size},)", f"name={name}"]
    arguments += [f"dtype={literal(dtype)}"] if dtype else []
    # With the comma behind it, which is the list's.
    written = call(f"{name}: keras.Input", arguments, ",", indent=8)
    return written.strip().removesuffix(",")


_OWN = (
    "    groups = {name: joined(parts) for name, parts in columns.items()}",
    "    output = checked(own(groups, **params))",
)


def _output(plan: TrainPlan, statistics: Statistics) -> list[str]:
    what = head(plan, statistics)
    if what is Head.BINARY:
        return ['    output = layers.Activation("sigmoid", dtype="float32")(logits)']
    if what is Head.CLASSES:
        return ['    output = layers.Activation("softmax", dtype="float32")(logits)']
    try:
        found = statistics.of(Measured(plan.label.column))
    except KeyError:
        found = None
    if found is None or found.mean is None:
        return ["    output = logits"]
    scale = math.sqrt(found.variance or 0.0) or 1.0
    return [
        comment("To the label's own scale: its deviation and its mean.", indent=4),
        call(
            "output = layers.Rescaling",
            [
                literal(float(scale)),
                f"offset={literal(float(found.mean))}",
                'dtype="float32"',
            ],
            "(logits)",
            indent=4,
        ),
    ]


def _compile(plan: TrainPlan, statistics: Statistics) -> str:
    what = head(plan, statistics)
    name = OPTIMIZERS[plan.optimizer][0]
    rate = networks.learning_rate(plan.model.family)
    options = {"learning_rate": rate, **dict(plan.optimizer_params)}
    given = ", ".join(f"{key}={literal(value)}" for key, value in options.items())
    metrics = metrics_of.metrics(metrics_of.chosen(what, plan.metrics))
    lines = [
        call("optimizer = keras.optimizers." + name, [given], indent=4),
        listing("metrics = ", metrics, indent=4),
        *_loss(plan, statistics, what),
    ]
    return "\n".join(lines)


def _loss(plan: TrainPlan, statistics: Statistics, what: Head) -> list[str]:
    """Return the lines that compile the network."""
    arguments = ["optimizer", literal(networks.LOSSES[what]), "metrics=metrics"]
    variance = _label_variance(plan, statistics) if what is Head.NUMBER else None
    if variance is None:
        return [call("network.compile", arguments, indent=4)]
    # Steps are then of the same size whatever the label's unit is.
    arguments.append("loss_weights=[weight]")
    return [
        comment(
            "In units of the label's variance: 1 is what the mean alone does.", indent=4
        ),
        f"    weight = 1 / {literal(float(variance))}",
        call("network.compile", arguments, indent=4),
    ]


def _label_variance(plan: TrainPlan, statistics: Statistics) -> float | None:
    try:
        return statistics.of(Measured(plan.label.column)).variance or None
    except KeyError:
        return None


def _encode(
    plan: TrainPlan, writer: EncodingWriter, parts: Mapping[str, list[str]]
) -> str:
    signature = "inputs, embedding_dim" if plan.model.family == "deepfm" else "inputs"
    lines = [f"def encode({signature}):"]
    lines.append(
        '    """Return the columns as numbers, by the part that takes them."""'
    )
    lines += writer.lines
    if writer.lines:
        lines.append("")
    inner = []
    for name, variables in parts.items():
        block = listing(f"{literal(name)}: ", variables, indent=8)
        inner.append(block.lstrip())
    one = "    return {" + ", ".join(inner) + "}"
    if "\n" not in one and len(one) <= 88:
        lines.append(one)
    else:
        lines.append("    return {")
        lines += [f"        {block}," for block in inner]
        lines.append("    }")
    return "\n".join(lines)


def _tree(
    plan: TrainPlan, places: Places, name: str, files: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values file: what the statement says, and defaults for SQL."""
    tree = job_tree(
        plan.name,
        {"definition": f"sql.{name}.model", "files": dict(files)},
        places,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        fields=plan.fields,
    )
    job = tree["job"]
    job["data"]["readerParams"] = {
        "columns": [*(c.feature for c in plan.columns), LABEL_FEATURE]
    }
    params = {key: _plain(value) for key, value in plan.model.params}
    if params:
        job["model"]["params"] = params
    return tree


def job_tree(
    name: str,
    model: dict[str, Any],
    places: Places,
    *,
    epochs: int,
    batch_size: int,
    fields: Iterable[tuple[tuple[str, ...], Any]],
) -> dict[str, Any]:
    """Return a values file's tree for a training of that name at some places."""
    job: dict[str, Any] = {
        "name": _job_name(name),
        "model": model,
        "data": {"training": places.training, "shuffleRecords": True},
        "training": {"epochs": epochs, "batchSize": batch_size},
        "export": {"dir": places.export, "formats": ["keras", "savedModel"]},
    }
    if places.validation:
        job["data"]["validation"] = places.validation
    else:
        job["evaluation"] = {"atEpochEnd": False, "atEnd": False}
    for path, value in fields:
        inner = job
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    if "strategy" not in job and not _spreads(job):
        job["strategy"] = "local"
    return {"kind": "job", "job": job}


def _spreads(job: Mapping[str, Any]) -> bool:
    """Whether the statement asks for more than one worker."""
    worker = job.get("worker", {})
    asked = any(key in job for key in _MANY_WORKERS)
    return asked or worker.get("replicas", 1) > 1 or worker.get("max", 0) > 1


def spread(said: Iterable[str]) -> list[str]:
    """Return what goes before `path=value` of a user who asks for several workers.

    One worker's strategy is in the values file already, as nobody named another one.
    """
    pairs = (one.partition("=") for one in said)
    fields = {path.strip().removeprefix("job."): value for path, _, value in pairs}
    if "strategy" in fields:
        return []
    counts = [fields.get(f"worker.{name}", "") for name in ("replicas", "max")]
    several = any(one.isdigit() and int(one) > 1 for one in counts)
    several |= any(path.partition(".")[0] in _MANY_WORKERS for path in fields)
    return [f"job.strategy={Strategy.PARAMETER_SERVER}"] if several else []


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _job_name(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:40].strip("-") or "sql"
