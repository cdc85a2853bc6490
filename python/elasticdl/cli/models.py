"""`elasticdl models list|show|export|drop`: the registry, without SQL.

Owns these commands' arguments and output; the registry is `elasticdl.sql.registry`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Parser, Verbs, add_verb
from elasticdl.cli.sql import add_models_dir, models_dir, show
from elasticdl.errors import ExitCode, JobError

if TYPE_CHECKING:
    from elasticdl.sql.registry import Registry


def add_parser(verbs: Verbs) -> None:
    """Add the verb and its four commands."""
    parser = verbs.add_parser(
        "models",
        help="list, show, export and drop models that SQL trained",
        description="The registry of models that `elasticdl sql` trained.",
        epilog="examples:\n  elasticdl models list\n"
        "  elasticdl models show income_model"
        "\n  elasticdl models export income_model@2 serving/income\n"
        "  elasticdl models drop income_model@1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inner = parser.add_subparsers(
        dest="models_verb", metavar="COMMAND", required=True, parser_class=Parser
    )
    add_models_dir(
        add_verb(inner, "list", handler=list_models, help_text="list all versions")
    )
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
    add_models_dir(parser)


def _registry(args: argparse.Namespace) -> Registry:
    from elasticdl.sql.registry import Registry

    return Registry(models_dir(args))


def list_models(args: argparse.Namespace) -> int:
    from elasticdl.sql.running.statements import models_table

    registry = _registry(args)
    versions = registry.all()
    if not versions:
        print(f"no models in {registry.root}; train one with `elasticdl sql`")
        return ExitCode.OK
    show(models_table(versions))
    return ExitCode.OK


def show_model(args: argparse.Namespace) -> int:
    from elasticdl.sql.running.statements import description

    show(description(_registry(args).find(args.model)))
    return ExitCode.OK


def export(args: argparse.Namespace) -> int:
    version = _registry(args).find(args.model)
    if args.folder.exists():
        raise JobError(f"{args.folder}: is there already, expected a folder to be made")
    shutil.copytree(version.export_dir, args.folder)
    print(f"{version.reference} copied to {args.folder}")
    return ExitCode.OK


def drop(args: argparse.Namespace) -> int:
    gone = _registry(args).drop(args.model)
    print(f"dropped {', '.join(one.reference for one in gone)}")
    return ExitCode.OK
