"""images/build, with a small program in the place of docker: how images are called."""

import os
import subprocess
from pathlib import Path

import pytest
from elasticdl import __version__
from elasticdl.client.zoo import STOCK_IMAGE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def build(tmp_path):
    """Run images/build with a docker that notes its words; what it says and notes."""
    noted = tmp_path / "noted"
    noted.touch()
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1" = info ] || echo "$@" >> {noted}\n')
    docker.chmod(0o755)

    def run(**settings):
        kept = {k: v for k, v in os.environ.items() if k not in ("REGISTRY", "TAG")}
        done = subprocess.run(
            [ROOT / "images" / "build"],
            env={**kept, "PATH": f"{tmp_path}:{os.environ['PATH']}", **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, noted.read_text()

    return run


def test_images_that_are_for_no_registry_have_no_name_of_a_public_one(build):
    done, words = build()
    assert done.returncode == 0, done.stderr
    for role in ("master", "ps", "worker", "training-jobs"):
        name = f"localhost/elasticdl/{role}:{__version__}"
        assert f"--tag {name} " in words
        assert f"built {name}\n" in done.stdout
    # A zoo begins with what was built so.
    assert f"--tag {STOCK_IMAGE} " in words


def test_images_are_called_by_the_registry_that_is_named_and_pushed_there(build):
    done, words = build(REGISTRY="registry.example/team", PUSH="1", TAG="v1")
    assert done.returncode == 0, done.stderr
    for role in ("master", "ps", "worker", "training-jobs"):
        assert f"push registry.example/team/elasticdl/{role}:v1\n" in words


def test_a_push_without_a_registry_is_refused(build):
    done, words = build(PUSH="1")
    assert done.returncode == 2
    assert "REGISTRY: got nothing beside PUSH=1, expected where to push" in done.stderr
    assert not words
