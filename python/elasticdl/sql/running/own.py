"""A model of one's own, `folder.file.function`: where its file is, and what it takes.

Owns the search, the difference between a function of encoded columns and a whole
classic module, and which clauses go with either. Called by `sql.running.train`. Must
not import the file: what is in it may need TensorFlow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.job.names import ZOO_NAME
from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql import attributes, flags
from elasticdl.sql.models import OWN, ModelKind, find_model
from elasticdl.sql.needs import sources
from elasticdl.sql.plan import Head, TrainPlan
from elasticdl.sql.problems import Problem, StatementError
from elasticdl.sql.running.logits import takes_logits
from elasticdl.sql.statements import Call, Constant, Name, Train

# From the current folder here and from the data root in a cluster; then of an image.
ROOTS = (Path(), Path(ZOO_NAME), Path("/model_zoo"))
# Compared with the data; an argument too, where the function has it.
COUNTS = ("num_classes", "n_classes")
# What COLUMN may do for a whole module: columns come as they are.
_AS_THEY_ARE = ("RAW", "DENSE", "NUMERIC", "CATEGORY_ID", "IDENTITY")
_OPTIMIZERS = ("optimizer", "model.optimizer", "train.optimizer")


@dataclass(frozen=True)
class Arguments:
    """What a function takes, besides the columns; `any` has one with `**params`."""

    names: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    any: bool = False

    def take(self, name: str) -> bool:
        """Whether there is one of that name."""
        return self.any or name in self.names


@dataclass(frozen=True)
class OwnModel:
    """Files of a zoo, and whether the function makes a whole model by itself."""

    files: dict[str, str]
    classic: bool
    arguments: Arguments = Arguments()
    of_logits: bool = False  # what the loss of a classic one takes


def own_model(statement: Train) -> tuple[OwnModel | None, list[Problem]]:
    """Return a model of one's own, and what is wrong with it, before rows are read."""
    if statement.model is None:
        return None, []
    found = find_model(statement.model.text)
    if not isinstance(found, ModelKind) or found.family != OWN:
        return None, []
    try:
        own = find_own(found.definition)
    except SpecError as error:
        return None, [Problem(statement.model.at, str(error))]
    own, wrong = _with_parts(statement, own, found.definition)
    return own, [*wrong, *_mistakes(statement, own)]


def _with_parts(
    statement: Train, own: OwnModel, definition: str
) -> tuple[OwnModel, list[Problem]]:
    """Return a whole module with the other files that WITH names its parts in."""
    if not own.classic:
        return own, []
    files = own.files
    problems = []
    loss = "loss"
    for attribute in statement.attributes:
        part = flags.field_of(attribute.key).removeprefix("model.")
        name = _text(attribute.value)
        if part not in attributes.PARTS or not name:
            continue
        if part == "loss":
            loss = name
        if "." not in name:
            continue
        found = [
            (root, root / place)
            for place in _files_of(name, definition)
            for root in ROOTS
            if (root / place).is_file()
        ]
        if found:
            files = {**files, **_beside(*found[0])}
        else:
            told = f"there is no file {_files_of(name, definition)[0]} for `{name}`"
            problems.append(Problem(attribute.at, told))
    of_logits = _takes_logits(files, definition, loss)
    return replace(
        own, files=dict(sorted(files.items())), of_logits=of_logits
    ), problems


def _text(value: object) -> str:
    if isinstance(value, Name):
        return value.text
    return str(value.value) if isinstance(value, Constant) else ""


def _files_of(name: str, definition: str) -> list[str]:
    """Return where a part may lie in the zoo: from its root, or beside the model."""
    *path, _ = name.split(".")
    *beside, _, _ = definition.split(".")
    if not path:
        path = definition.split(".")[:-1]
    return ["/".join(one) + ".py" for one in (path, [*beside, *path])]


def _takes_logits(files: dict[str, str], definition: str, loss: str) -> bool:
    """Whether a loss, or without one the model's own function, says so itself."""
    for name in (loss, definition):
        symbol = name.rpartition(".")[2]
        found = takes_logits(files, _files_of(name, definition), symbol)
        if found is not None:
            return found
    return False


def refuse_logits(plan: TrainPlan, own: OwnModel, statement: Train, text: str) -> None:
    """Raise StatementError for a whole module that gives logits for classes."""
    if not own.of_logits or plan.label.head is Head.NUMBER or statement.model is None:
        return
    told = (
        f"the loss of {plan.model.definition} takes logits, and rows of classes are "
        "told with probabilities: end the model in a sigmoid of two classes, in a "
        "softmax of more, and let its loss take these"
    )
    raise StatementError(text, [Problem(statement.model.at, told)])


def fitted(plan: TrainPlan, own: OwnModel) -> TrainPlan:
    """Return a plan with the arguments that a function takes, and true notes."""
    given = plan.model.params
    params = tuple(p for p in given if p[0] not in COUNTS or own.arguments.take(p[0]))
    notes = plan.notes
    if own.classic:
        derived = {
            f"{name}: {one.derived}"
            for one in plan.features
            for name in sources(one.encoding)
        }
        names = ", ".join(one.column for one in plan.columns)
        told = f"{plan.model.definition}: a whole module; as they are it gets {names}"
        notes = (*(one for one in notes if one not in derived), told)
    return replace(plan, model=replace(plan.model, params=params), notes=notes)


def find_own(definition: str, roots: Sequence[Path] = ROOTS) -> OwnModel:
    """Return the files beside a definition's own, by their paths in the zoo.

    A function without a needed argument makes a whole model: its module is a classic
    one, with loss, optimizer and feed of its own. Raises SpecError where the file or
    the function is not there.
    """
    *parts, function = definition.split(".")
    if parts[0] == "sql":
        raise SpecError(
            f"TO TRAIN {definition}: in the folder `sql` lies the module that is made "
            "of the statement; expected a folder of another name"
        )
    for root in roots:
        file = root.joinpath(*parts).with_suffix(".py")
        if file.is_file():
            found = _function(file, _read(file), function)
            classic = _is_classic(found)
            arguments = _arguments(found, classic=classic)
            return OwnModel(_beside(root, file), classic, arguments)
    looked = ", ".join(str(root.absolute()) for root in roots)
    path = Path(*parts).with_suffix(".py")
    there = sorted(
        ".".join(one.relative_to(root).with_suffix("").parts)
        for root in roots[:2]
        for one in root.glob("*/*.py")
    )
    hint = f"; {did_you_mean('.'.join(parts), there)}" if there else ""
    raise SpecError(
        f"TO TRAIN {definition}: there is no file {path} in {looked}; expected "
        f"`folder.file.function` of your own, or a model of ElasticDL{hint}"
    )


def _beside(root: Path, file: Path) -> dict[str, str]:
    """Return the modules of the file's folder, and what they import of the root."""
    found: dict[str, str] = {}
    to_read = _modules(root, file.parent) if file.parent != root else [file]
    while to_read:
        one = to_read.pop()
        name = str(one.relative_to(root))
        if name in found:
            continue
        found[name] = _read(one)
        for top in _imported(found[name], root, one):
            to_read += _modules(root, root / top)
            to_read += filter(Path.is_file, [root / f"{top}.py"])
    return dict(sorted(found.items()))


def _modules(root: Path, folder: Path) -> list[Path]:
    """Return the modules of a folder and those above it that make it a package."""
    above = [one / "__init__.py" for one in folder.parents if one.is_relative_to(root)]
    # What is hidden is no package: `.venv`, `.ipynb_checkpoints`.
    below = (
        one
        for one in folder.rglob("*.py")
        if not any(part.startswith(".") for part in one.relative_to(folder).parts)
    )
    return [*below, *filter(Path.is_file, above)] if folder.is_dir() else []


def _imported(text: str, root: Path, file: Path) -> set[str]:
    """Return the first parts of the names of modules that a file's text imports.

    A zoo may be called `model_zoo` in it, whatever its folder is called.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:  # of a module that perhaps nobody imports
        return set()
    names: set[str] = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            names |= {alias.name for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            parts = [one.module] if one.module else []
            if one.level:
                parts = [*file.relative_to(root).parts[: -one.level], *parts]
            names |= {".".join([*parts, alias.name]) for alias in one.names}
    if not (root / ZOO_NAME).is_dir():
        names = {name.removeprefix(f"{ZOO_NAME}.") for name in names}
    return {name.partition(".")[0] for name in names}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: cannot be read: {error}") from error


def _function(file: Path, text: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise SpecError(f"{file}, line {error.lineno}: {error.msg}") from error
    functions = {
        one.name: one
        for one in tree.body
        if isinstance(one, ast.FunctionDef | ast.ClassDef)
    }
    found = functions.get(name)
    if found is None:
        hint = did_you_mean(name, list(functions))
        raise SpecError(f"{file} has no function `{name}`; {hint}")
    return found


def _is_classic(found: ast.FunctionDef | ast.ClassDef) -> bool:
    if isinstance(found, ast.ClassDef):
        return True
    return len(_positional(found)) == len(found.args.defaults)


def _positional(found: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*found.args.posonlyargs, *found.args.args)]


def _arguments(found: ast.FunctionDef | ast.ClassDef, *, classic: bool) -> Arguments:
    if isinstance(found, ast.ClassDef):
        return Arguments(any=True)
    of = found.args
    positional = _positional(found)
    needed = positional[: len(positional) - len(of.defaults)]
    if not classic:  # the first takes the columns
        positional, needed = positional[1:], needed[1:]
    by_name = [one.arg for one in of.kwonlyargs]
    bare = [k for k, v in zip(by_name, of.kw_defaults, strict=True) if v is None]
    return Arguments(
        (*positional, *by_name), (*needed, *bare), any=of.kwarg is not None
    )


def _mistakes(statement: Train, own: OwnModel) -> Iterator[Problem]:
    """Yield the clauses of a statement that its own model does not go with."""
    assert statement.model is not None  # noqa: S101 - it named the model
    definition = statement.model.text
    given = set()
    for attribute in statement.attributes:
        family, _, name = attribute.key.partition(".")
        if family.lower() != "model" or attribute.key.lower() in _OPTIMIZERS:
            continue
        given.add(name)
        if not own.arguments.take(name) and name not in COUNTS:
            hint = did_you_mean(name, own.arguments.names)
            yield Problem(
                attribute.at, f"{definition} has no argument `{name}`; {hint}"
            )
    for name in own.arguments.needed:
        if name not in given:
            told = f"{definition} needs `{name}`; expected WITH model.{name} = ..."
            yield Problem(statement.model.at, told)
    others = _of_whole_module if own.classic else _of_function
    yield from others(statement, definition)


def _of_function(statement: Train, definition: str) -> Iterator[Problem]:
    """Yield names of parts of a module: it is made of the statement."""
    for attribute in statement.attributes:
        field = flags.field_of(attribute.key)
        if field.removeprefix("model.") in attributes.PARTS:
            told = (
                f"job.{field} names a part of a whole module, and {definition} is a "
                "function; take it out"
            )
            yield Problem(attribute.at, told)


def _of_whole_module(statement: Train, definition: str) -> Iterator[Problem]:
    """Yield what would have no effect: the module is the job's own."""
    for attribute in statement.attributes:
        key = attribute.key.lower()
        if key in _OPTIMIZERS or key.startswith("optimizer."):
            told = (
                f"{definition} is a whole module, with an optimizer of its own; take "
                "this out, or make it an argument: model.learning_rate = 0.01"
            )
            yield Problem(attribute.at, told)
        elif key == "validation.metrics":
            told = (
                f"{definition} is a whole module, with metrics of its own; take this "
                "out, TO EVALUATE can ask for others"
            )
            yield Problem(attribute.at, told)
    for clause in statement.columns:
        if clause.group is not None:
            told = f"{definition} is a whole module without groups; take FOR away"
            yield Problem(clause.group.at, told)
        for entry in clause.entries:
            as_it_is = not isinstance(entry, Call) or (
                entry.function.upper() in _AS_THEY_ARE
                and all(isinstance(one, Name) for one in entry.arguments[:1])
            )
            if not as_it_is:
                told = (
                    f"{definition} is a whole module, which gets columns as they are; "
                    "expected names alone, or CATEGORY_ID(x, n) for an integer as int64"
                )
                yield Problem(entry.at, told)
