"""Locks say what the package asks for, in the versions that the tests pass with."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from release.facts import plain
from release.lock import (
    BUILD_LOCK,
    BUILD_REQUIREMENT,
    CONSTRAINTS,
    EXTRAS,
    ROOT,
    pinned,
)

PROJECT = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
LOCKS = [*EXTRAS, BUILD_LOCK]


def asked_for(path):
    if path == BUILD_LOCK:
        return [Requirement(BUILD_REQUIREMENT)]
    extras = PROJECT["optional-dependencies"]
    lines = [
        *PROJECT["dependencies"],
        *(each for e in EXTRAS[path] for each in extras[e]),
    ]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("path", LOCKS)
def test_a_lock_has_all_that_an_image_asks_for(path):
    locked = pinned((ROOT / path).read_text())
    for wanted in asked_for(path):
        version = locked.get(plain(wanted.name))
        assert version, f"{wanted} is not in {path}: run `make lock`"
        assert wanted.specifier.contains(version), f"{path}: run `make lock`"


@pytest.mark.parametrize("path", LOCKS)
def test_a_lock_has_the_versions_that_tests_pass_with(path):
    constraints = {
        plain(name): version
        for name, version in re.findall(
            r"(?m)^([\w.-]+)==(\S+)", (ROOT / CONSTRAINTS).read_text()
        )
    }
    for name, version in pinned((ROOT / path).read_text()).items():
        assert constraints.get(name, version) == version, f"{name}: run `make lock`"


@pytest.mark.parametrize("path", LOCKS)
def test_every_package_of_a_lock_has_hashes(path):
    text = (ROOT / path).read_text()
    blocks = re.split(r"(?m)^(?=\w)", text)[1:]
    assert len(blocks) == len(pinned(text))
    for block in blocks:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_dockerfiles_install_by_locks_alone():
    for role in ("master", "ps", "worker", "training-jobs"):
        text = (ROOT / "images" / role / "Dockerfile").read_text()
        joined = text.replace("\\\n", " ")
        installs = re.findall(r"pip [^&\n]*install[^&\n]*", joined)
        assert installs
        for each in installs:
            own_wheel = "--no-deps" in each and "dist/*.whl" in each
            assert own_wheel or "--require-hashes" in each, each
