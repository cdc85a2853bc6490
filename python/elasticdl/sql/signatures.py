"""COLUMN's functions by name: which arguments each one takes.

Owns the table, SQLFlow's spellings and the binding of arguments to names. Called by
`sql.columns`. Must not know schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql.problems import Problem
from elasticdl.sql.statements import Call, Expression


@dataclass(frozen=True)
class Signature:
    """A function: needed arguments, then those that may be left out."""

    name: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    usage: str = ""
    many: bool = False  # Any number of the first argument: CONCAT(a, b, c).


_ALL = (
    Signature("RAW", ("x",), usage="RAW(x)"),
    Signature("STANDARDIZE", ("x",), usage="STANDARDIZE(x)"),
    Signature("NORMALIZE", ("x",), usage="NORMALIZE(x)"),
    Signature("LOG", ("x",), usage="LOG(x)"),
    Signature("NULL_INDICATOR", ("x",), usage="NULL_INDICATOR(x)"),
    Signature(
        "BUCKETIZE", ("x",), ("boundaries", "num_buckets"),
        "BUCKETIZE(x, num_buckets=10) or BUCKETIZE(x, [18, 30, 60])",
    ),
    Signature(
        "VOCABULARIZE", ("x",), ("max_size", "min_count"),
        "VOCABULARIZE(x, max_size=1000, min_count=2)",
    ),
    Signature("CATEGORY_ID", ("x", "buckets"), (), "CATEGORY_ID(x, buckets)"),
    Signature("HASH", ("x", "buckets"), (), "HASH(x, buckets)"),
    Signature("CROSS", ("items", "buckets"), (), "CROSS([a, b], buckets)"),
    Signature("CONCAT", ("x",), (), "CONCAT(a, b) AS name", many=True),
    Signature("INDICATOR", ("x",), (), "INDICATOR(x)"),
    Signature(
        "EMBEDDING", ("x", "dim"), ("combiner",),
        "EMBEDDING(x, 8, combiner='mean')",
    ),
    Signature("SPLIT", ("x",), ("delimiter",), "SPLIT(x, ',')"),
    Signature("DENSE", ("x",), ("shape", "delimiter", "dtype"), "DENSE(x)"),
    Signature(
        "SPARSE", ("x", "buckets"), ("delimiter", "dtype", "pair", "dtype_key"),
        "SPARSE(x, buckets, ',')",
    ),
    Signature(
        "WEIGHTED_CATEGORY", ("x",), ("buckets", "delimiter", "pair"),
        "WEIGHTED_CATEGORY(x, buckets, ',', ':')",
    ),
    Signature(
        "SEQ_CATEGORY_ID", ("x", "buckets"), ("delimiter",),
        "SEQ_CATEGORY_ID(x, buckets, ',')",
    ),
)  # fmt: skip
SIGNATURES = {one.name: one for one in _ALL}
SYNONYMS = {
    "BUCKET": "BUCKETIZE",
    "CATEGORY": "VOCABULARIZE",
    "APPLY_VOCAB": "VOCABULARIZE",
    "CATEGORY_HASH": "HASH",
    "HASH_BUCKET": "HASH",
    "IDENTITY": "CATEGORY_ID",
    "NUMERIC": "DENSE",
}
REFUSED = {
    "COMBINE": "entries of one group are combined anyway; take it away",
}
_ARGUMENT_SYNONYMS = {
    "dimension": "dim",
    "bounds": "boundaries",
    "num_bins": "buckets",
    "bucket_size": "buckets",
    "shape": "buckets",
    "hash_bucket_size": "buckets",
    "vocabulary_size": "max_size",
    "delim": "delimiter",
    "delim_kv": "pair",
    "separator": "delimiter",
}


def find(call: Call) -> Signature | Problem:
    """Return the signature of the function that is called, or the mistake."""
    name = call.function.upper()
    name = SYNONYMS.get(name, name)
    if name in SIGNATURES:
        return SIGNATURES[name]
    if name in REFUSED:
        return Problem(call.at, f"{name} is no function here; {REFUSED[name]}")
    hint = did_you_mean(name, [*SIGNATURES, *SYNONYMS])
    return Problem(call.at, f"there is no function `{call.function}`; {hint}")


def bind(
    call: Call, signature: Signature, report: Callable[[Problem], None]
) -> dict[str, Expression] | None:
    """Return the arguments by name; None where the call is wrong, which is reported."""
    names = (*signature.needed, *signature.optional)
    bound: dict[str, Expression] = {}
    right = True
    for i, argument in enumerate(call.arguments):
        if i >= len(names) and not signature.many:
            many = "one argument" if len(names) == 1 else f"{len(names)} arguments"
            report(
                Problem(
                    argument.at,
                    f"{signature.name} takes {many}, this is one more; expected "
                    f"{signature.usage}",
                )
            )
            return None
        bound[names[min(i, len(names) - 1)]] = argument
    for keyword in call.keywords:
        name = keyword.name.lower()
        name = name if name in names else _ARGUMENT_SYNONYMS.get(name, name)
        if name not in names:
            hint = did_you_mean(keyword.name, names)
            message = f"{signature.name} has no argument `{keyword.name}`; {hint}"
            report(Problem(keyword.at, message))
            right = False
        elif name in bound:
            message = f"`{keyword.name}` is given twice; expected {signature.usage}"
            report(Problem(keyword.at, message))
            right = False
        bound[name] = keyword.value
    missing = [name for name in signature.needed if name not in bound]
    if missing and right:
        report(
            Problem(
                call.at,
                f"{signature.name} needs `{missing[0]}`; expected {signature.usage}",
            )
        )
    return bound if right and not missing else None
