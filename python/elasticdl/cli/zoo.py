"""`zoo`: an image with a model zoo in it, made and pushed.

Owns the verbs' arguments and what is told. The folder's files and the programs that
build images are `client.zoo`'s.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from elasticdl.cli.options.arguments import Parser, Verbs, add_verb
from elasticdl.errors import ExitCode

_ENGINES = ("docker", "podman", "buildah")


def add_parser(verbs: Verbs) -> None:
    """Add `zoo` with its three commands."""
    zoo = add_verb(
        verbs,
        "zoo",
        handler=init,
        help_text="make an image with your models in it",
        description="Makes an image with your models in it, for jobs in a cluster: "
        "write a folder of model\nmodules, build it into an image, push that, and name "
        "it in a job.",
        examples=(
            "elasticdl zoo init model_zoo",
            "elasticdl zoo build --image=registry.example/zoo:1 model_zoo",
            "elasticdl zoo push registry.example/zoo:1",
            "elasticdl train --image_name=registry.example/zoo:1 --model_zoo=model_zoo",
        ),
    )
    inner = zoo.add_subparsers(
        dest="zoo_verb", metavar="COMMAND", required=True, parser_class=Parser
    )
    _add_init(inner)
    _add_build(inner)
    _add_push(inner)


def _add_init(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "init",
        handler=init,
        help_text="write a Dockerfile, requirements.txt and a model to begin with",
        description="Writes a Dockerfile from a worker image, requirements.txt and a "
        "small model module\ninto a folder. Files that are there stay as they are.",
        examples=(
            "elasticdl zoo init",
            "elasticdl zoo init model_zoo --base-image=registry.example/worker:1",
        ),
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="the zoo (default: the current folder)",
    )
    parser.add_argument(
        "--model_zoo", "--model-zoo", type=Path, metavar="DIR", help="the same"
    )
    _add_base_image(parser)


def _add_build(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "build",
        handler=build,
        help_text="build the image of a zoo",
        description="Builds the image of a zoo with docker, podman or buildah, "
        "whichever is there.",
        examples=(
            "elasticdl zoo build --image=registry.example/zoo:1 .",
            "elasticdl zoo build --image=zoo:1 --engine=buildah . -- --no-cache",
        ),
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the zoo, with its Dockerfile"
    )
    parser.add_argument(
        "--image", required=True, metavar="NAME:TAG", help="name of the new image"
    )
    _add_base_image(parser)
    _add_engine(parser)


def _add_push(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "push",
        handler=push,
        help_text="push an image to its registry",
        examples=(
            "elasticdl zoo push registry.example/zoo:1",
            "elasticdl zoo push localhost:5000/zoo:1 -- --tls-verify=false",
        ),
    )
    parser.add_argument("image", metavar="NAME:TAG", help="the image")
    _add_engine(parser)


def _add_base_image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base-image",
        "--base_image",
        metavar="NAME:TAG",
        help="image to build on (default: the worker image of this version that `make "
        "images` builds on this machine, localhost/elasticdl/worker)",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", choices=_ENGINES, help="the program to use (default: what works)"
    )
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="-- ARGUMENTS",
        help="further arguments for that program",
    )


def init(args: argparse.Namespace) -> int:
    from elasticdl.client import zoo

    folder = args.folder or args.model_zoo or Path()
    written, kept = zoo.init(folder, base_image=args.base_image)
    for name in written:
        print(f"written: {folder / name}")
    for name in kept:
        print(f"kept as it is: {folder / name}")
    print(
        "put your models and what they need into it, then: elasticdl zoo build "
        f"--image=NAME:TAG {folder}"
    )
    return ExitCode.OK


def build(args: argparse.Namespace) -> int:
    from elasticdl.client import zoo

    engine = zoo.find_engine(args.environ.get("PATH"), wanted=args.engine)
    zoo.build(
        engine,
        args.folder,
        image=args.image,
        base_image=args.base_image,
        arguments=args.arguments,
    )
    print(f"built {args.image}; push it: elasticdl zoo push {args.image}")
    return ExitCode.OK


def push(args: argparse.Namespace) -> int:
    from elasticdl.client import zoo

    engine = zoo.find_engine(args.environ.get("PATH"), wanted=args.engine)
    zoo.push(engine, args.image, arguments=args.arguments)
    print(f"pushed {args.image}; run it: elasticdl train --image_name={args.image} ...")
    return ExitCode.OK
