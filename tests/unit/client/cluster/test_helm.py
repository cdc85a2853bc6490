"""Helm as a program and as a library; a small script stands for the program."""

import json

import pytest
from elasticdl.client.cluster.api import Where
from elasticdl.client.cluster.helm import HelmLibrary, HelmProgram, failure, find_helm
from elasticdl.errors import PlatformError, SpecError

WHERE = Where("kind", "ml")
VALUES = {"kind": "job", "job": {"name": "digits"}}


@pytest.fixture
def helm(tmp_path):
    """Make a program that keeps words and standard input of each call."""

    def make(*, fails=""):
        program = tmp_path / "helm"
        program.write_text(
            "#!/bin/sh\n"
            f'echo "$@" >> {tmp_path}/calls\n'
            f'[ "$1" = uninstall ] || [ "$1" = show ] || cat > {tmp_path}/values\n'
            "[ $1 = show ] && printf 'name: elasticdl\\nkubeVersion: \">=1.29.0-0\"\\n'"
            " && exit\n"
            f'[ "$1" = "{fails}" ] && echo "Error: INSTALLATION FAILED: no" >&2'
            " && exit 1\n"
            "echo rendered\n"
        )
        program.chmod(0o755)
        return find_helm(str(tmp_path))

    return make


def calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines()


def test_the_program_on_the_path_goes_before_the_library(helm, tmp_path):
    assert isinstance(helm(), HelmProgram)
    assert isinstance(find_helm(str(tmp_path / "nowhere")), HelmLibrary)


def test_the_program_hears_namespace_context_and_values(helm, tmp_path):
    assert helm().render(tmp_path, "digits", WHERE, VALUES) == "rendered\n"
    helm().install(tmp_path, "digits", Where("", "ml"), VALUES, create_namespace=True)
    assert calls(tmp_path) == [
        f"show chart {tmp_path}",
        f"template digits {tmp_path} --namespace ml --kube-context kind --values -"
        " --kube-version 1.29.0",
        f"install digits {tmp_path} --namespace ml --values - --create-namespace",
    ]
    assert json.loads((tmp_path / "values").read_text()) == VALUES


def test_an_install_that_fails_tells_what_helm_says(helm, tmp_path):
    with pytest.raises(PlatformError, match=r"^helm: no$"):
        helm(fails="install").install(tmp_path, "digits", WHERE, VALUES)


def test_uninstalling_what_is_gone_is_no_error(helm, tmp_path):
    helm().uninstall("digits", WHERE)
    assert calls(tmp_path) == [
        "uninstall digits --namespace ml --kube-context kind --ignore-not-found"
    ]


def test_values_that_the_chart_refuses_are_a_mistake_of_the_values():
    text = (
        "WARNING: Kubernetes configuration file is group-readable\n"
        "Error: values don't meet the specifications of the schema(s):\n"
        "- at '/job': additional properties 'imagee' not allowed\n"
    )
    error = failure(text)
    assert isinstance(error, SpecError)
    assert "additional properties 'imagee'" in str(error)
    assert "WARNING" not in str(error)
    assert isinstance(failure(""), PlatformError)
