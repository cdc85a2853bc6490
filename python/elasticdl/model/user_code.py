"""The border between ElasticDL and the user's model module.

Owns how an exception of the user's code becomes one message with the user's own file
and line, and how modules and symbols of the zoo are found. Called by everything in
`model` that runs user code. Knows nothing of what the symbols mean.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.errors import ElasticDLError, UserCodeError
from elasticdl.model import classic_names
from elasticdl.model.zoo_name import name_zoo

CODE_FOLDERS = "_CODE_FOLDERS"  # Of a module that loads others by itself.
_LONGEST_MESSAGE = 400  # A message of one line; the log has the rest.
_OWN_PACKAGE = Path(__file__).resolve().parents[1]
_NOISE = re.compile(r'File ".*", line \d+|Graph execution|Detected at node|\[\[\{\{')
_NODE = re.compile(r"\{\{function_node [^}]*\}\}\s*")
_ARGUMENTS = re.compile(r"\n\s*\n *Arguments received by ")
_BOLD = re.compile(r"\x1b\[[0-9;]*m")
_IN_TEXT = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return `; did you mean ...?`, the known names, or ""."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(f'`{c}`' for c in close)}?"
    if known:
        return f"; there is {', '.join(f'`{k}`' for k in sorted(known)[:12])}"
    return ""


@dataclass(frozen=True)
class ModelCode:
    """The folder of model modules, and what has been imported from it.

    Attributes:
        root: The zoo.
        main_file: The module that the job names.
        others: Folders from which that module loads code by itself.
    """

    root: Path
    main_file: Path
    others: tuple[Path, ...] = ()

    def owns(self, file: str) -> bool:
        """Return whether a file is the user's: in the zoo, not an installed package."""
        if "site-packages" in file or Path(file).is_relative_to(_OWN_PACKAGE):
            return False
        place = Path(file).resolve()
        return any(
            place.is_relative_to(one.resolve()) for one in (self.root, *self.others)
        )

    def with_others(self, module: ModuleType) -> ModelCode:
        """Return this code with the folders that its main module names, if any."""
        folders = vars(module).get(CODE_FOLDERS, ())
        return replace(self, others=tuple(map(Path, folders)))

    @contextlib.contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Turn any exception of user code in the block into a UserCodeError.

        The message is one line: what was run, the user's file:line, the exception. The
        exception itself stays as the cause, for those who ask for the trace.
        """
        try:
            yield
        except ElasticDLError:
            raise
        except Exception as error:
            raise UserCodeError(self.describe(what, error)) from error

    def describe(self, what: str, error: BaseException) -> str:
        """Return the one-line message for an exception of the user's code."""
        where = self._where(error)
        place = f" at {where}" if where else ""
        if known := classic_names.advice(error):
            return f"{what}{place}: {known}"
        return f"{what} raised {type(error).__name__}{place}: {short(error)}"

    def _where(self, error: BaseException) -> str:
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno}"
        own = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if self.owns(frame.filename)
        ]
        if own:
            return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}"
        # Code that AutoGraph rewrote has no frame of its own: TensorFlow keeps the
        # original places beside the exception, or in its message.
        metadata = getattr(error, "ag_error_metadata", None)
        for frame in getattr(metadata, "translated_stack", ()):
            if self.owns(frame.filename):
                return f"{frame.filename}:{frame.lineno} in {frame.function_name}"
        for file, line, name in reversed(_IN_TEXT.findall(str(error))):
            if self.owns(file):
                return f"{file}:{line} in {name}"
        return ""


def short(error: BaseException) -> str:
    """Return an exception's text in one line, without TensorFlow's traces."""
    # Keras says at the end with which tensors a layer was called, and TensorFlow's
    # trace has a margin.
    text = _ARGUMENTS.split(str(error))[0]
    if "in user code:" in text:
        # TensorFlow quotes the trace first and the message last.
        text = text.rstrip().rsplit("\n\n", 1)[-1]
    # What a tf.py_function raised comes with a trace and with TensorFlow's names.
    text = _BOLD.sub("", text)
    text = _NODE.sub("", text.split("\nTraceback (most recent call last)")[0])
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not _NOISE.match(line.strip())
    ]
    line = " ".join(lines[:4]) or repr(error)
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + " ..."


def locate(root: Path, definition: str) -> tuple[ModelCode, str]:
    """Return the code that `folder.file.function` names and the function's name.

    Raises UserCodeError, naming what is there, when the folder or file is not.
    """
    *path, function = definition.split(".")
    if not path or not all([*path, function]):
        raise UserCodeError(
            f"model.definition is `{definition}`, expected `folder.file.function` or "
            "`file.function`, as `mnist.functional_api.custom_model`"
        )
    if not root.is_dir():
        raise UserCodeError(
            f"the model zoo {root} is not a folder; set model.zoo (--model_zoo) to the "
            f"folder that `{path[0]}` lies in"
        )
    file = root.joinpath(*path).with_suffix(".py")
    if not file.is_file():
        there = sorted(
            ".".join(p.relative_to(root).with_suffix("").parts)
            for p in root.rglob("*.py")
            if p.name != "__init__.py"
        )
        raise UserCodeError(
            f"model.definition `{definition}`: there is no file {file}"
            + did_you_mean(".".join(path), there)
        )
    return ModelCode(root, file), function


def import_module(code: ModelCode, file: Path, *, again: bool = False) -> ModuleType:
    """Import one file of the zoo under its dotted name; once, unless `again`.

    The zoo comes first on the import path and its parent last, so that a module may
    import its neighbours as `folder.file` and as `model_zoo.folder.file`.
    """
    root = str(code.root.resolve())
    if root not in sys.path:
        sys.path.insert(0, root)
    parent = str(code.root.resolve().parent)
    if parent not in sys.path:
        sys.path.append(parent)
    name_zoo(Path(root))
    name = ".".join(file.resolve().relative_to(root).with_suffix("").parts)
    known = sys.modules.get(name)
    if (
        not again
        and known is not None
        and getattr(known, "__file__", None) == str(file.resolve())
    ):
        return known
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{file} cannot be imported; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with code.running(f"importing {file}"):
            spec.loader.exec_module(module)
    except UserCodeError:
        sys.modules.pop(name, None)
        raise
    return module


def public_names(module: ModuleType) -> list[str]:
    """Return the functions and classes that a module itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


def find_symbol(code: ModelCode, main: ModuleType, name: str) -> Any | None:
    """Return a symbol of the model file, or `other.file.symbol` of the zoo, or None.

    Raises UserCodeError when a dotted name's file is not there.
    """
    *path, symbol = name.split(".")
    if not path:
        return getattr(main, symbol, None)
    for base in (code.root, code.main_file.parent):
        file = base.joinpath(*path).with_suffix(".py")
        if file.is_file():
            module = import_module(code, file)
            found = getattr(module, symbol, None)
            if found is None:
                raise UserCodeError(
                    f"`{name}`: {file} has no `{symbol}`"
                    + did_you_mean(symbol, public_names(module))
                )
            return found
    raise UserCodeError(
        f"`{name}`: there is no file {code.root.joinpath(*path).with_suffix('.py')}"
    )


def check_params(
    what: str, function: Callable[..., Any], params: Mapping[str, Any]
) -> None:
    """Raise UserCodeError if `function` does not take `params` by name."""
    target = function.__init__ if inspect.isclass(function) else function
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # built-in callables say nothing of themselves
        return
    takes = {
        name: p
        for name, p in signature.parameters.items()
        if name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return
    unknown = sorted(set(params) - set(takes))
    if unknown:
        raise UserCodeError(
            f"model.params has {', '.join(f'`{u}`' for u in unknown)}, which {what} "
            "does not take"
            + (did_you_mean(unknown[0], list(takes)) or "; it takes none")
        )
    missing = [
        name for name, p in takes.items() if p.default is p.empty and name not in params
    ]
    if missing:
        raise UserCodeError(
            f"{what} needs {', '.join(f'`{m}`' for m in missing)}; give them under "
            "model.params"
        )


_PREDICTIONS = frozenset(
    {"output", "outputs", "predictions", "prediction", "logits", "y_pred", "preds"}
)
_LABELS = frozenset({"labels", "label", "targets", "target", "y_true"})


def takes_predictions_first(function: Callable[..., Any]) -> bool:
    """Return whether a loss or metric names its parameters (predictions, labels).

    The oldest model modules did; everything since says (labels, predictions).
    """
    try:
        names = list(inspect.signature(function).parameters)[:2]
    except (TypeError, ValueError):
        return False
    return len(names) == 2 and names[0] in _PREDICTIONS and names[1] in _LABELS


def public_names_of(code: ModelCode) -> list[str]:
    """Return the functions and classes of the imported main file."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(code.main_file.resolve()):
            return public_names(module)
    return []


def call_with_known(
    function: Callable[..., Any],
    required: Mapping[str, Any],
    offered: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> Any:
    """Call `function` with `required` by position and the `offered` it takes.

    Raises UserCodeError if it does not take all of `asked`, which the job names.
    """
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes = list(parameters)[len(required) :]
    unknown = [name for name in asked if name not in takes]
    if unknown and not takes_all:
        raise UserCodeError(
            f"data.readerParams has `{unknown[0]}`, which the module's reader does not "
            "take" + did_you_mean(unknown[0], takes)
        )
    extra = {k: v for k, v in offered.items() if takes_all or k in takes}
    return function(*required.values(), **{**extra, **asked})
