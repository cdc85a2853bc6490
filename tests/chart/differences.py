"""Rendered objects as text, and as what differs from another release's objects.

Called by `snapshots`. Differences are hunks of lines with one line around them, under
the object and the field they stand in. No line numbers: those would change with every
line that is added above. Where a field has the same lines twice, the hunk counts them.
"""

import difflib
import re
from collections.abc import Sequence
from itertools import pairwise

Objects = dict[str, list[str]]  # what it is, from which template: its lines

_TEMPLATE = re.compile(r"(?m)^# ([\w./-]+\.(?:yaml|txt))\n")
_KIND = re.compile(r"(?m)^kind: (.+)$")
_NAME = re.compile(r'(?m)^metadata:\n(?:  .*\n)*?  name: "?([^"\n]+)"?$')
_HUNK = re.compile(r"@@ (.*?)(?: \(number (\d+)\))? @@")
_HEAD = re.compile(r"(?m)^# (changed|new|gone): (.+)\n")


def objects_of(text: str) -> Objects:
    """Return the objects of a snapshot: templates' texts, each after its name."""
    _, *parts = _TEMPLATE.split(text)
    found: Objects = {}
    for template, rendered in zip(parts[::2], parts[1::2], strict=True):
        if template.endswith(".txt"):
            found[template] = rendered.strip().splitlines()
            continue
        for document in re.split(r"(?m)^---$", rendered):
            if not document.strip():
                continue
            kind, name = _KIND.search(document), _NAME.search(document)
            assert kind, f"of no kind: {document}"
            assert name, f"without a name: {document}"
            key = f"{kind[1]} {name[1]} ({template})"
            assert key not in found, f"{key} is made twice"
            found[key] = document.strip().splitlines()
    return found


def differences(base: Objects, changed: Objects) -> str:
    """Return what makes `changed` of `base`, as `applied` reads it."""
    lines: list[str] = []
    for key in [*changed, *(key for key in base if key not in changed)]:
        if key not in changed:
            lines += ["", f"# gone: {key}"]
        elif key not in base:
            lines += ["", f"# new: {key}", *(f"+{line}" for line in changed[key])]
        elif changed[key] != base[key]:
            lines += ["", f"# changed: {key}", *_hunks(base[key], changed[key])]
    return "\n".join(lines[1:]) + "\n" if lines else ""


def applied(base: Objects, text: str) -> Objects:
    """Return the objects that `differences` compared with `base`."""
    result = {key: list(lines) for key, lines in base.items()}
    _, *parts = _HEAD.split(text)
    for how, key, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        lines = body.rstrip("\n").split("\n")
        if how == "gone":
            del result[key]
        elif how == "new":
            result[key] = [line[1:] for line in lines]
        else:
            result[key] = _changed(base[key], lines)
    return result


def _hunks(before: Sequence[str], after: Sequence[str]) -> list[str]:
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(1):
        first, end = group[0][1], group[-1][2]
        field = _field(before, first)
        same = _places(before, field, before[first:end])
        number = f" (number {same.index(first) + 1})" if len(same) > 1 else ""
        lines.append(f"@@ {field}{number} @@")
        for kind, old, old_end, new, new_end in group:
            if kind == "equal":
                lines += [f" {line}" for line in before[old:old_end]]
                continue
            lines += [f"-{line}" for line in before[old:old_end]]
            lines += [f"+{line}" for line in after[new:new_end]]
    return lines


def _changed(before: Sequence[str], hunks: Sequence[str]) -> list[str]:
    """Return lines with hunks applied, each where its field and lines are."""
    heads = [at for at, line in enumerate(hunks) if line.startswith("@@ ")]
    result: list[str] = []
    done = 0
    for head, end in pairwise([*heads, len(hunks)]):
        found = _HUNK.fullmatch(hunks[head])
        assert found, hunks[head]
        lines = hunks[head + 1 : end]
        old = [line[1:] for line in lines if line[:1] in " -"]
        first = _places(before, found[1], old)[int(found[2] or 1) - 1]
        result += before[done:first]
        result += [line[1:] for line in lines if line[:1] in " +"]
        done = first + len(old)
    return result + list(before[done:])


def _places(lines: Sequence[str], field: str, wanted: Sequence[str]) -> list[int]:
    """Return where these lines stand in that field."""
    return [
        at
        for at in range(len(lines) - len(wanted) + 1)
        if lines[at : at + len(wanted)] == wanted and _field(lines, at) == field
    ]


def _field(lines: Sequence[str], at: int) -> str:
    """Return the fields around a line, by indentation: `spec > containers > main`."""
    names: list[str] = []
    depth = len(lines[at]) - len(lines[at].lstrip())
    for line in reversed(lines[:at]):
        text = line.lstrip()
        if text and not text.startswith("#") and len(line) - len(text) < depth:
            depth = len(line) - len(text)
            key, _, value = text.removeprefix("- ").partition(":")
            names.insert(0, value.strip() if text.startswith("- name: ") else key)
    return " > ".join(names) or "(top)"
