"""What the values of classic flags mean: `cpu=1,memory=4Gi`, `k=v;k=v`, `high=0.5`.

Owns one parser per form; each turns a flag's text into the value of its field. Used by
`job.classic_flags.table`. Nothing is ever evaluated as code.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from elasticdl.job.spec.problems import did_you_mean

_TRUE = ("true", "yes", "t", "y", "1")
_FALSE = ("false", "no", "f", "n", "0")
_STRATEGIES = {
    "": "local",
    "local": "local",
    "parameterserverstrategy": "parameterServer",
    "parameterserver": "parameterServer",
    "allreducestrategy": "allReduce",
    "allreduce": "allReduce",
}
_READERS = {"csv": "csv", "text": "csv", "recordio": "recordio", "tfrecord": "tfrecord"}
_VOLUME_KEYS = {
    "claim_name": "claimName",
    "host_path": "hostPath",
    "mount_path": "mountPath",
    "sub_path": "subPath",
    "type": "type",
}


class FlagValueError(ValueError):
    """The text of a flag is invalid."""

    def __init__(self, expected: str, next_step: str) -> None:
        """Say what was expected and what to do."""
        super().__init__(expected)
        self.expected = expected
        self.next_step = next_step


def text(value: str) -> str:
    """Return the text as it is."""
    return value


def whole(value: str) -> int:
    """Return a whole number."""
    try:
        return int(value)
    except ValueError:
        raise FlagValueError("a whole number", "write it in digits") from None


def epochs(value: str) -> int:
    """Return the number of epochs; what is not positive means endless."""
    return max(0, whole(value))


def seconds(value: str) -> float:
    """Return a number of seconds."""
    try:
        return float(value)
    except ValueError:
        raise FlagValueError("a number of seconds", "write it in digits") from None


def truth(value: str) -> bool:
    """Return true or false; a flag without a value has the text `true`."""
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise FlagValueError("true or false", "leave the value out for true")


def level(value: str) -> str:
    """Return a log level in our spelling."""
    return value.lower()


def strategy(value: str) -> str:
    """Return the strategy's name in a values file."""
    plain = value.replace("_", "").lower()
    if plain not in _STRATEGIES:
        names = ("ParameterServerStrategy", "AllreduceStrategy", "Local")
        raise FlagValueError("a strategy", did_you_mean(value, names))
    return _STRATEGIES[plain]


def worker_priority(value: str) -> str:
    """Return a class or a share; `high=0.5`, the older form, is the share `0.5`."""
    name, equals, share = value.partition("=")
    return share if equals and name == "high" else value


def environment(value: str) -> dict[str, str]:
    """Return `k=v,k=v` as a mapping; a comma without a key belongs to the value."""
    result: dict[str, str] = {}
    for pair in re.split(r",(?=[A-Za-z_][A-Za-z0-9_.-]*=)", value):
        name, equals, inner = pair.partition("=")
        if not equals or not name:
            raise FlagValueError("k=v,k=v", f"{pair!r} has no name or no `=`")
        _once(result, name)
        result[name] = inner
    return result


def parameters(value: str) -> dict[str, Any]:
    """Return `k=v;k=v` as a mapping of typed values; nothing is evaluated."""
    result: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in value.split(";"))):
        name, equals, inner = pair.partition("=")
        if not equals or not name.strip():
            raise FlagValueError("k=v;k=v", f"{pair!r} has no name or no `=`")
        _once(result, name.strip())
        result[name.strip()] = _typed(inner.strip())
    return result


def resources(value: str) -> dict[str, Any]:
    """Return `cpu=1,memory=4Gi,gpu=1` as the keys of a resources section."""
    result: dict[str, Any] = {}
    extra: dict[str, str] = {}
    for pair in value.split(","):
        name, equals, amount = (part.strip() for part in pair.partition("="))
        if not equals or not amount:
            raise FlagValueError("cpu=1,memory=4096Mi", f"{pair!r} has no `=`")
        if name == "cpu":
            _once(result, name)
            result["cpu"] = _cpus(amount)
        elif name == "memory":
            _once(result, name)
            result["memory"] = amount
        else:
            key = _extra_resource(name)
            _once(extra, key)
            extra[key] = amount
    if extra:
        result["extra"] = extra
    return result


def volumes(value: str) -> list[dict[str, str]]:
    """Return `claim_name=..,mount_path=..;host_path=..,...` as a list of volumes."""
    result = []
    for volume in filter(None, value.split(";")):
        keys: dict[str, str] = {}
        for pair in volume.split(","):
            name, equals, inner = (part.strip() for part in pair.partition("="))
            if not equals or name not in _VOLUME_KEYS:
                raise FlagValueError(
                    "claim_name=..,mount_path=..", did_you_mean(name, _VOLUME_KEYS)
                )
            _once(keys, _VOLUME_KEYS[name])
            keys[_VOLUME_KEYS[name]] = inner
        result.append(keys)
    return result


def reader_format(value: Any) -> str:
    """Return the format that the classic parameter `reader_type` names."""
    plain = str(value).lower()
    if plain not in _READERS:
        raise FlagValueError(
            "reader_type CSV, RecordIO or TFRecord",
            "other sources need a custom reader in the model module",
        )
    return _READERS[plain]


def _cpus(amount: str) -> float:
    try:
        if amount.endswith("m"):
            return int(amount[:-1]) / 1000
        return float(amount)
    except ValueError:
        raise FlagValueError("CPUs as 0.5 or 500m", f"cpu is {amount!r}") from None


def _extra_resource(name: str) -> str:
    if name in ("disk", "ephemeral-storage"):
        return "ephemeral-storage"
    if name == "gpu":
        return "nvidia.com/gpu"
    if name.endswith("/gpu") or name.startswith("nvidia.com/"):
        return name
    known = ("cpu", "memory", "disk", "ephemeral-storage", "gpu", "nvidia.com/gpu")
    raise FlagValueError("cpu=1,memory=4096Mi,...", did_you_mean(name, known))


def _typed(value: str) -> Any:
    try:
        tree = ast.parse(value, mode="eval")
    except (SyntaxError, ValueError):
        return _by_yaml(value)
    code = (ast.Call, ast.Lambda, ast.ListComp, ast.DictComp, ast.GeneratorExp)
    if any(isinstance(node, code) for node in ast.walk(tree)):
        raise FlagValueError(
            "values, not code", f"write what {value!r} gives in its place"
        )
    try:
        literal = ast.literal_eval(tree)
    except (ValueError, TypeError):
        return _by_yaml(value)
    return list(literal) if isinstance(literal, tuple | set) else literal


def _by_yaml(value: str) -> Any:
    # Late: help, which lists the flags, needs none of it and has to come at once.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe").load(value)
    except (YAMLError, ValueError):
        return value


def _once(known: dict[str, Any], name: str) -> None:
    if name in known:
        raise FlagValueError(f"`{name}` once", "remove one of them")
