"""`elasticdl models list|show|export|drop`: the registry, without SQL.

Owns these commands' arguments and output; the registry is `elasticdl.sql.registry`. One
in a cluster is asked by the statements that say the same.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli import sql_cluster
from elasticdl.cli.options.arguments import Parser, Verbs, add_verb
from elasticdl.cli.options.where import is_cluster_asked
from elasticdl.cli.sql import (
    add_models_dir,
    models_dir,
    run_text,
    session_there,
    show,
)
from elasticdl.errors import ExitCode, JobError, SpecError

if TYPE_CHECKING:
    from elasticdl.sql.registry import Registry
    from elasticdl.sql.running.session import Session

_STATEMENTS = {"list": "SHOW MODELS", "show": "DESCRIBE MODEL", "drop": "DROP MODEL"}


def add_parser(verbs: Verbs) -> None:
    """Add the verb and its four commands."""
    parser = verbs.add_parser(
        "models",
        help="list, show, export and drop models that SQL trained",
        description="The registry of models that `elasticdl sql` trained.",
        epilog="examples:\n  elasticdl models list\n"
        "  elasticdl models show income_model"
        "\n  elasticdl models export income_model@2 serving/income\n"
        "  elasticdl models drop income_model@1"
        "\n  elasticdl models list -n ml        # of a cluster",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inner = parser.add_subparsers(
        dest="models_verb", metavar="COMMAND", required=True, parser_class=Parser
    )
    one = add_verb(inner, "list", handler=list_models, help_text="list all versions")
    _add_registry(one)
    one = add_verb(
        inner,
        "show",
        handler=show_model,
        help_text="show a version: columns, label, figures, files",
    )
    _add_model(one)
    one = add_verb(
        inner,
        "export",
        handler=export,
        help_text="copy a version's exported model",
        examples=("elasticdl models export income_model serving/income",),
    )
    _add_model(one)
    one.add_argument("folder", type=Path, metavar="DIR", help="a folder to be made")
    one = add_verb(
        inner,
        "drop",
        handler=drop,
        help_text="remove a version, or with a bare name all of them",
    )
    _add_model(one)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="NAME[@VERSION]", help="the model")
    _add_registry(parser)


def _add_registry(parser: argparse.ArgumentParser) -> None:
    add_models_dir(parser)
    sql_cluster.add_registry_options(parser)


def _registry(args: argparse.Namespace) -> Registry:
    from elasticdl.sql.registry import Registry

    if args.overrides or args.chart:
        raise SpecError(
            "--set, --chart: got them without a cluster, whose pods they are for; "
            "expected -n NS, --cluster or --context, or none of them"
        )
    return Registry(models_dir(args))


def list_models(args: argparse.Namespace) -> int:
    from elasticdl.sql.running.statements import models_table

    if is_cluster_asked(args):
        return ask_there(_there(args), "list", debug=args.debug)
    registry = _registry(args)
    versions = registry.all()
    if not versions:
        print(f"no models in {registry.root}; train one with `elasticdl sql`")
        return ExitCode.OK
    show(models_table(versions))
    return ExitCode.OK


def show_model(args: argparse.Namespace) -> int:
    from elasticdl.sql.running.statements import description

    if is_cluster_asked(args):
        return ask_there(_there(args), "show", args.model, debug=args.debug)
    show(description(_registry(args).find(args.model)))
    return ExitCode.OK


def export(args: argparse.Namespace) -> int:
    if is_cluster_asked(args):
        raise SpecError(
            "elasticdl models export: got a cluster, whose models stay on its volume; "
            f"`elasticdl models show {args.model}` with the same options says in which "
            "folder: serve what is in its export/ from there, or copy that with "
            "`kubectl cp` from a pod that mounts the volume"
        )
    version = _registry(args).find(args.model)
    if args.folder.exists():
        raise JobError(f"{args.folder}: is there already, expected a folder to be made")
    # Whoever serves what is there must not see half of it.
    aside = args.folder.with_name(f".{args.folder.name}.{secrets.token_hex(4)}")
    try:
        shutil.copytree(version.export_dir, aside)
        aside.rename(args.folder)
    except OSError as error:  # as of a version that is dropped meanwhile
        raise JobError(f"{args.folder}: cannot be copied: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    print(f"{version.reference} copied to {args.folder}")
    return ExitCode.OK


def drop(args: argparse.Namespace) -> int:
    if is_cluster_asked(args):
        return ask_there(_there(args), "drop", args.model, debug=args.debug)
    gone = _registry(args).drop(args.model)
    print(f"dropped {', '.join(one.reference for one in gone)}")
    return ExitCode.OK


def _there(args: argparse.Namespace) -> Session:
    """Return a session in the cluster that the options name."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, stderr=True)
    return session_there(sql_cluster.registry_of(args, console), console)


def ask_there(
    session: Session, verb: str, name: str = "", *, debug: bool = False
) -> int:
    """Run the statement that says what a command does; the exit code."""
    doubled = name.replace('"', '""')  # Whatever is in it.
    statement = f'{_STATEMENTS[verb]} "{doubled}"' if name else _STATEMENTS[verb]
    return run_text(session, statement, debug=debug)
