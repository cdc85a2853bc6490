"""A chart rendered by Helm's library, here or in a process that can be ended.

Owns the call. Called by `client.cluster.helm`, or run by it as a program, with the
values on standard input. It imports nothing of the product, which would take longer to
load than the chart to render.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What a chart takes, twice over. Three processes of that size leave the controller of
# TrainingJobs enough of its gigabyte: one that took all would end it.
_MOST_BYTES = 224 << 20


def render(chart: Path, release: str, namespace: str, values: dict[str, Any]) -> str:
    """Return the manifests, one YAML document each. Raises helm_python.HelmError."""
    import helm_python as helm

    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema(values)
        files = loaded.render(
            values, name=release, namespace=namespace, is_install=True
        )
    texts = [
        f"---\n# Source: {name}\n{text.strip()}\n"
        for name, text in sorted(files.items())
        if name.endswith((".yaml", ".yml")) and text.strip()
    ]
    return "".join(texts)


def main(arguments: Sequence[str]) -> int:
    """Print the manifests, or what Helm says against them; return the exit code."""
    os.putenv("GOMAXPROCS", "2")  # the stacks of its threads count too
    with contextlib.suppress(ValueError, OSError):  # it has a tighter limit
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    import helm_python as helm

    chart, release, namespace = arguments
    try:
        text = render(Path(chart), release, namespace, json.load(sys.stdin))
    except helm.HelmError as error:
        sys.stderr.write(str(error))
        return 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
