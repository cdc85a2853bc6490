"""The dashboards' ConfigMaps: for Grafana's sidecar, with the JSON untouched."""

import helm_python as helm
import pytest
from elasticdl.job.values.defaults import CONFIG_MAP

from tests.chart.rendering import ROOT, example, objects

FILES = sorted((ROOT / "dashboards").glob("*.json"))


def config_maps(**settings):
    dashboards = {"enabled": True, **settings}
    found = objects({"monitoring": {"dashboards": dashboards}})
    maps = {name: made for (kind, name), made in found.items() if kind == "ConfigMap"}
    del maps[CONFIG_MAP]  # what the platform says for its jobs
    return maps


def test_each_dashboard_is_a_config_map_that_the_sidecar_finds():
    made = config_maps()
    assert sorted(made) == [f"dashboard-elasticdl-{file.stem}" for file in FILES]
    for file in FILES:
        one = made[f"dashboard-elasticdl-{file.stem}"]
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert "annotations" not in one["metadata"]
        # Untouched: legends like {{cause}} are Grafana's, not Helm's.
        assert one["data"] == {f"elasticdl-{file.name}": file.read_text()}


def test_label_and_folder_are_the_sidecars():
    made = config_maps(label="dash", labelValue="yes", folder="Training jobs")
    for one in made.values():
        assert one["metadata"]["labels"]["dash"] == "yes"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Training jobs"}


def test_no_dashboard_is_installed_unless_it_is_wanted():
    assert [name for kind, name in objects() if kind == "ConfigMap"] == [CONFIG_MAP]


def test_no_name_is_that_of_a_jobs_config_map():
    assert not [name for name in config_maps() if name.startswith("elasticdl-")]


@pytest.mark.parametrize("part", ["dashboards", "rules"])
def test_a_jobs_release_refuses_what_the_platform_installs(part):
    values = {**example("digits"), "monitoring": {part: {"enabled": True}}}
    with pytest.raises(helm.HelmError, match=f"`monitoring.{part}` belongs to the pl"):
        objects(values)
