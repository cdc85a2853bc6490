"""`elasticdl sql -n NS`: statements whose rows and models are in a cluster.

Owns the options that name the cluster. Called by `cli.sql` and `cli.models`. What runs
there is `sql.remote`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import add_overrides
from elasticdl.cli.options.where import add_cluster_options
from elasticdl.cli.submit import state_of
from elasticdl.errors import SpecError
from elasticdl.job import names

if TYPE_CHECKING:
    from rich.console import Console

    from elasticdl.sql.remote.cluster import Asked
    from elasticdl.sql.remote.flow import Remote


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says that statements run in a cluster, and how."""
    group = parser.add_argument_group(
        "in a cluster",
        "The query is read, and models are kept, by pods on the job's volume; the URL\n"
        f"of the tables is {names.ENV_SQL_URL} of a Secret.",
    )
    add_cluster_options(group)
    group.add_argument(
        "--secret",
        metavar="NAME",
        help=f"the Secret with {names.ENV_SQL_URL}, given to the job's pods "
        "(pods.common.envFrom)",
    )
    _add_chart(group)


def add_registry_options(parser: argparse.ArgumentParser) -> None:
    """Add what says that a registry is in a cluster, and how its pods are made."""
    group = parser.add_argument_group(
        "in a cluster",
        "The models are on a volume there, of which a short pod tells; --models-dir\n"
        "is the registry's folder on it.",
    )
    add_cluster_options(group)
    _add_chart(group)
    add_overrides(parser)


def _add_chart(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--chart",
        metavar="PATH",
        type=Path,
        help="another chart than the one of this package",
    )


def remote_of(args: argparse.Namespace, console: Console) -> Remote:
    """Return the cluster that the options name."""
    from elasticdl.sql.remote.cluster import Asked

    if args.dry_run:
        raise SpecError("--dry-run: got it beside -n, expected one of them")
    asked = Asked(
        namespace=args.namespace or "",
        context=args.context or "",
        secret=args.secret or "",
        db=args.db or "",
        models=str(args.models_dir or ""),
        chart=args.chart,
        overrides=tuple(args.overrides),
    )
    return _connected(asked, args.environ, console)


def registry_of(args: argparse.Namespace, console: Console) -> Remote:
    """Return the cluster whose registry the options name; it asks no tables."""
    from elasticdl.sql.remote.cluster import Asked

    asked = Asked(
        namespace=args.namespace or "",
        context=args.context or "",
        models=str(args.models_dir or ""),
        chart=args.chart,
        overrides=tuple(args.overrides),
    )
    environ = {k: v for k, v in args.environ.items() if k != names.ENV_SQL_URL}
    return _connected(asked, environ, console)


def _connected(asked: Asked, environ: Mapping[str, str], console: Console) -> Remote:
    from elasticdl.sql.remote.cluster import connected

    return connected(
        asked,
        environ,
        say=lambda line: console.print(line, soft_wrap=True),
        state_of=state_of,
    )
