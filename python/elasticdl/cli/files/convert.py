"""`elasticdl convert`: a values file as a TrainingJob, and back.

Owns the reading of either and where the result goes. What the object has of a values
file is in `job.values.training_job`.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.errors import ExitCode, SpecError

_STDIN = Path("-")


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "convert",
        handler=convert,
        help_text="a values file as a TrainingJob for `kubectl apply`, and back",
        description="Prints a values file as a TrainingJob, and a TrainingJob as a "
        "values file. Comments\nstay. What `kubectl get -o yaml` prints is read too.",
        examples=(
            "elasticdl convert values/digits.yaml | kubectl apply -n ml -f -",
            "elasticdl convert values/digits.yaml -o digits-job.yaml",
            "kubectl get -n ml trainingjob digits -o yaml | elasticdl convert - "
            "-o values/digits.yaml",
        ),
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="either of both; `-` is standard input"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write it there, in place of what is there; without it, it is printed",
    )


def convert(args: argparse.Namespace) -> int:
    """Print or write the other form. Raises SpecError that names every mistake."""
    from elasticdl.files import write_whole

    text = converted(_read(args.file), source=str(args.file))
    if args.output is None:
        print(text, end="")
    else:
        write_whole(args.output, text, durable=True)
    return ExitCode.OK


def converted(text: str, *, source: str) -> str:
    """Return the text of the other form. Raises SpecError."""
    from elasticdl.job.spec.problems import spec_error
    from elasticdl.job.values.file import dump_values, dump_yaml, parse_values
    from elasticdl.job.values.training_job import (
        is_training_job,
        manifest_of,
        read_manifest,
    )

    tree = _tree(text)
    if tree is not None and is_training_job(tree):
        values, problems = read_manifest(tree)
        if values is None:
            raise SpecError(f"{source}: {spec_error(problems)}")
        moved = _moved_back(text)
        return moved if _is(moved, values) else dump_values(values)
    values, problems = parse_values(text, source=source)
    if values is None:
        raise spec_error(problems)
    lost = {"jobs", "global"} & set(values.chart_keys())
    if lost:
        raise SpecError(
            f"{source}: got `{'`, `'.join(sorted(lost))}`, which no TrainingJob has: "
            "the platform of its namespace says that; take it out"
        )
    moved = _moved(text)
    again, _ = read_manifest(_tree(moved) or {})
    return moved if moved and again == values else dump_yaml(manifest_of(values))


def _is(text: str, values: Any) -> bool:
    from elasticdl.job.values.file import parse_values

    return bool(parse_values(text, source="")[0] == values)


def _read(file: Path) -> str:
    if file == _STDIN:
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{file}: cannot be read: {error}; expected a values file or a TrainingJob"
        ) from None


def _tree(text: str) -> dict[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="safe").load(text)
    except (RecursionError, ValueError, YAMLError):
        return None  # who reads it as a values file says what is wrong
    return tree if isinstance(tree, dict) else None


def _moved(text: str) -> str:
    """Return a values file's text as a TrainingJob's, with its comments.

    "" where that would be another one to kubectl.
    """
    from ruamel.yaml.comments import CommentedMap

    from elasticdl.job.values.training_job import API_VERSION, KIND

    tree, out = _commented(text), CommentedMap()
    if not _made_plain(tree):
        return ""
    job = tree["job"]
    metadata = CommentedMap(name=_taken(job, "name", indent=4))
    if namespace := _taken(job, "namespace", indent=4):
        metadata["namespace"] = namespace
    _taken(tree, "kind", indent=2)
    out["apiVersion"], out["kind"] = API_VERSION, KIND
    out["metadata"], out["spec"] = metadata, tree
    _take_heading(tree, out)
    return _written(out)


def _made_plain(tree: Any) -> bool:
    """Write what kubectl reads otherwise in its words; False for a key, which stays."""
    from ruamel.yaml.scalarint import ScalarInt
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, PlainScalarString

    from elasticdl.job.values.readings import kubernetes_reads_otherwise

    def differs(value: Any) -> bool:
        plain = type(value) is str or isinstance(value, PlainScalarString)
        return plain and kubernetes_reads_otherwise(value)

    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for at, value in list(pairs):
        if differs(at):
            return False
        if differs(value):
            tree[at] = DoubleQuotedScalarString(value)
        elif type(value) is ScalarInt:
            tree[at] = int(value)  # 010, which is 8 there
        elif isinstance(value, (dict, list)) and not _made_plain(value):
            return False
    return True


def _moved_back(text: str) -> str:
    """Return a TrainingJob's text as a values file's, with its comments."""
    from ruamel.yaml.comments import CommentedMap

    tree, out = _commented(text), CommentedMap(kind="job")
    about, spec = tree["metadata"], tree["spec"]
    job = CommentedMap()
    for key in ("name", "namespace"):
        if about.get(key):
            job[key] = about[key]
    for key in ("name", "namespace"):
        spec["job"].pop(key, None)
    named = spec["job"]
    for at, (key, value) in enumerate(job.items()):
        named.insert(at, key, value)
    for key in list(spec):
        out[key] = spec[key]
        if key in spec.ca.items:
            out.ca.items[key] = spec.ca.items[key]
    # What is above a section's first key is kept with the section; others by their key.
    first, above = next(iter(spec)), (spec.ca.comment or [None, None])[1]
    if above:
        kept = out.ca.items.setdefault(first, [None, None, None, None])
        kept[1] = [*above, *(kept[1] or [])]
    out.move_to_end("job", last=False)
    out.move_to_end("kind", last=False)
    _take_heading(tree, out)
    return _written(out)


def _taken(tree: Any, key: str, *, indent: int) -> Any:
    """Take a key out; the comments beside and below it go above the next one."""
    if key not in tree:
        return None
    keys = list(tree)
    after = keys[keys.index(key) + 1 :]
    tokens = tree.ca.items.pop(key, None) or [None, None, None]
    value = tree.pop(key)
    lines = tokens[2].value.splitlines() if tokens[2] is not None else []
    said = [line.strip().removeprefix("#").removeprefix(" ") for line in lines]
    said = [line for line in said if line]
    if after and said:
        tree.yaml_set_comment_before_after_key(
            after[0], before="\n".join(said), indent=indent
        )
    return value


def _take_heading(tree: Any, out: Any) -> None:
    """Move the comment above the first key of a document."""
    if tree.ca.comment:
        out.ca.comment, tree.ca.comment = tree.ca.comment, None


def _commented(text: str) -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    return yaml.load(text)


def _written(tree: Any) -> str:
    from elasticdl.job.values.file import yaml_writer

    out = io.StringIO()
    yaml_writer().dump(tree, out)
    return out.getvalue()
