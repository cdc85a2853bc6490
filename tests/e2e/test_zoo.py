"""An image of a model zoo, built and pushed by a real program for images."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elasticdl.errors import ExitCode

BASE = "localhost/python:3.11-slim"
SCRIPTS = Path(__file__).parent / "cluster"


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """The environment in which buildah finds the images of the test cluster."""
    assert shutil.which("buildah"), (
        "buildah is missing; tests/e2e/cluster/build installs it"
    )
    state = Path(os.environ.get("CLUSTER_STATE") or "~/.cache/elasticdl/cluster")
    state = state.expanduser()
    subprocess.run([SCRIPTS / "base-image"], check=True)
    storage = tmp_path_factory.mktemp("storage") / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{state}/storage"\n'
        f'runroot = "{state}/storage-run"\n'
    )
    return {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(storage),
        "BUILDAH_ISOLATION": "chroot",
    }


def zoo(env, *words, code=ExitCode.OK):
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.cli.main", "zoo", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.soak
def test_a_new_zoo_becomes_an_image_with_the_models_in_it(env, tmp_path):
    image = f"localhost/zoo-test:{os.getpid()}"
    zoo(env, "init", str(tmp_path / "zoo"), f"--base-image={BASE}")
    said = zoo(
        env, "build", f"--image={image}", "--engine=buildah", str(tmp_path / "zoo"),
        "--", "--network", "host",
    )  # fmt: skip
    assert f"built {image}; push it: elasticdl zoo push {image}" in said
    archive = tmp_path / "zoo.tar"
    try:
        subprocess.run(
            ["buildah", "push", image, f"docker-archive:{archive}"],
            env=env, check=True, capture_output=True,
        )  # fmt: skip
        layers = subprocess.run(
            f"mkdir {tmp_path}/layers && tar -xf {archive} -C {tmp_path}/layers &&"
            f" for layer in {tmp_path}/layers/*.tar; do tar -tf $layer; done",
            shell=True, check=True, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        subprocess.run(["buildah", "rmi", image], env=env, check=True)
    assert "model_zoo/example/mlp.py" in layers.stdout


def test_what_the_program_says_is_shown(env):
    said = zoo(
        env, "push", "localhost/no-such:1", "--engine=buildah", code=ExitCode.PLATFORM
    )
    assert "image not known" in said
    assert "buildah push failed" in said
