"""State in the master is changed by its owner: nobody sets what is another object's."""

import ast
from collections.abc import Iterator
from pathlib import Path

from elasticdl import master

MASTER = Path(master.__file__).parent
OF_ONE_MODULE = {
    # Their functions are the methods of a record that no other module has.
    "tasks/audit.py",
    "tasks/audit_tasks.py",
    # It numbers messages, which have no methods.
    "tasks/side_tasks.py",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return []
    return [e for t in found for e in (t.elts if isinstance(t, ast.Tuple) else [t])]


def made_in(function: Function) -> set[str]:
    """Names of what a function has from a call, and may be putting together."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def set_elsewhere(path: Path) -> Iterator[str]:
    """Assignments to attributes of objects that are neither `self` nor just made."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, Function):
            continue
        own = {"self", "cls", *made_in(function)}
        for node in ast.walk(function):
            for target in targets(node):
                if not isinstance(target, ast.Attribute):
                    continue
                owner = target.value
                if not (isinstance(owner, ast.Name) and owner.id in own):
                    yield f"{path.name}:{target.lineno}: {ast.unparse(target)}"


def test_no_attribute_of_another_object_is_set_in_the_master() -> None:
    found = [
        place
        for path in sorted(MASTER.rglob("*.py"))
        if str(path.relative_to(MASTER)) not in OF_ONE_MODULE
        for place in set_elsewhere(path)
    ]
    assert found == []


def test_an_attribute_that_is_set_elsewhere_is_found(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("def f(self, member):\n    self.a, member.state = 1, 2\n")
    assert list(set_elsewhere(path)) == ["one.py:2: member.state"]
