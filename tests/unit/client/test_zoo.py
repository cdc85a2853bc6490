"""Model zoos and their images; small programs stand for docker, podman, buildah."""

import ast

import pytest
from elasticdl.client import zoo
from elasticdl.errors import PlatformError, SpecError


@pytest.fixture
def programs(tmp_path):
    """Make programs that write down their arguments, one a line, and end as wanted."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(name, *, exit_code=0, broken=""):
        program = folder / name
        program.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = "{broken}" ] && exit 1\n'
            f'printf "%s\\n" "$@" > {tmp_path}/{name}.arguments\n'
            f"echo {name} works\n"
            f"exit {exit_code}\n"
        )
        program.chmod(0o755)
        return folder

    return make


def engine(folder, name=None):
    return zoo.find_engine(str(folder), wanted=name)


def arguments(tmp_path, name):
    return (tmp_path / f"{name}.arguments").read_text().splitlines()


def test_a_new_zoo_has_an_image_of_the_stock_worker_and_a_model(tmp_path):
    written, kept = zoo.init(tmp_path / "my_zoo")
    assert kept == []
    assert set(written) == {
        "Dockerfile",
        ".dockerignore",
        "requirements.txt",
        "example/mlp.py",
    }
    dockerfile = (tmp_path / "my_zoo" / "Dockerfile").read_text()
    assert f"ARG BASE_IMAGE={zoo.STOCK_IMAGE}\n" in dockerfile
    assert "COPY . /model_zoo\n" in dockerfile
    model = (tmp_path / "my_zoo" / "example" / "mlp.py").read_text()
    assert "--model_zoo=my_zoo" in model
    names = {
        one.name for one in ast.parse(model).body if isinstance(one, ast.FunctionDef)
    }
    assert names == {"custom_model", "loss", "optimizer", "feed", "eval_metrics_fn"}


def test_files_that_are_there_stay_as_they_are(tmp_path):
    (tmp_path / "requirements.txt").write_text("mine\n")
    written, kept = zoo.init(tmp_path, base_image="registry.example/worker:1")
    assert kept == ["requirements.txt"]
    assert (tmp_path / "requirements.txt").read_text() == "mine\n"
    assert "worker:1" in (tmp_path / "Dockerfile").read_text()
    assert "Dockerfile" in written


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_the_program_that_is_there_builds_and_pushes(programs, tmp_path, capfd, name):
    folder = programs(name)
    zoo.init(tmp_path / "z")
    zoo.build(
        engine(folder),
        tmp_path / "z",
        image="r/z:1",
        base_image="b:1",
        arguments=["--no-cache"],
    )
    assert arguments(tmp_path, name) == [
        "build",
        "--tag",
        "r/z:1",
        "--build-arg",
        "BASE_IMAGE=b:1",
        "--no-cache",
        str(tmp_path / "z"),
    ]
    zoo.push(engine(folder), "r/z:1", arguments=["--quiet"])
    assert arguments(tmp_path, name) == ["push", "--quiet", "r/z:1"]
    assert f"{name} works" in capfd.readouterr().out


def test_a_docker_without_its_daemon_gives_way_to_another_program(programs):
    folder = programs("docker", broken="version")
    assert engine(folder).name == "docker"  # whose own message says what is wrong
    programs("buildah")
    assert engine(folder).name == "buildah"
    assert engine(folder, "docker").name == "docker"


def test_without_any_program_it_is_said_which_would_do(tmp_path):
    with pytest.raises(PlatformError, match="no docker, podman or buildah on the PATH"):
        engine(tmp_path)
    with pytest.raises(PlatformError, match="no podman"):
        engine(tmp_path, "podman")


def test_a_folder_without_a_dockerfile_is_no_zoo(programs, tmp_path):
    folder = programs("docker")
    with pytest.raises(SpecError, match="write one with `elasticdl zoo init"):
        zoo.build(engine(folder), tmp_path, image="z:1")
    with pytest.raises(SpecError, match="got no folder"):
        zoo.build(engine(folder), tmp_path / "none", image="z:1")


def test_a_build_that_fails_is_an_error(programs, tmp_path):
    folder = programs("podman", exit_code=125)
    with pytest.raises(PlatformError, match=r"podman push failed \(exit code 125\)"):
        zoo.push(engine(folder), "z:1")
