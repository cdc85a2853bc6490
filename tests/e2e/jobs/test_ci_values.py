"""The chart's ci/*-values.yaml install and come up, as `ct install` tries them."""

from ruamel.yaml import YAML

from tests.e2e.releases import CHART


def ci_values(name):
    return YAML(typ="safe").load(CHART / "ci" / name)


def test_each_of_the_ci_values_files_installs_and_comes_up(job, helm, kube):
    files = {file.name for file in (CHART / "ci").glob("*-values.yaml")}
    assert files == {"job-values.yaml", "platform-values.yaml"}
    helm.install("ct-platform", ci_values("platform-values.yaml"))
    assert kube.get("serviceaccount", "ct-master")
    ct = job(ci_values("job-values.yaml"))
    assert ct.wait_running("worker", 1)
    ct.wait_steps(1)
    ct.uninstall()
    helm.uninstall("ct-platform")
    assert kube.get("serviceaccount", "elasticdl-master")
