"""Real Helm on the project's chart, and what it renders as data; without a cluster."""

import json
from functools import cache
from pathlib import Path

import helm_python as helm
import yaml

# libyaml's parser: the one in Python takes as long as Helm needs to render.
LOADER = yaml.CSafeLoader
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "elasticdl"
JOBS = sorted((ROOT / "values").glob("*.yaml"))
FURTHER = sorted((ROOT / "tests" / "chart" / "values").glob("*.yaml"))
IN_CI = sorted((CHART / "ci").glob("*-values.yaml"))
EXAMPLES = [*JOBS, *FURTHER, *IN_CI]
# Of all releases of these tests that need one and do not say it.
REGISTRY = "registry.example"


@cache
def chart():
    return helm.Chart.load(CHART)


def example(name):
    """Return the values of one example by its file's name."""
    (file,) = (file for file in EXAMPLES if file.stem == name)
    return values_of(file)


def values_of(file):
    return helm.values_from_yaml(file.read_text())


def render(values=None, *, release="release", namespace="ml"):
    """Return {template: text} of what is not empty; the same again for the same."""
    given = json.dumps(with_registry(values or {}))
    return dict(_rendered(given, release, namespace))


def with_registry(values):
    """Return values with a registry where stock images are needed and none is said."""
    of_platform = (values.get("jobs") or {}).get("defaults") or {}
    exporter = ((values.get("monitoring") or {}).get("exporter") or {}).get("enabled")
    controller = (values.get("controller") or {}).get("enabled")
    own = (values.get("job") or {}).get("image")
    needed = (values.get("kind") == "job" and not own) or exporter is True
    needed = needed or controller is True
    said = [place.get("images", {}) for place in (values, of_platform)]
    if not needed or any(not isinstance(it, dict) or "registry" in it for it in said):
        return values
    return merged(values, {"images": {"registry": REGISTRY}})


@cache
def _rendered(values, release, namespace):
    texts = chart().render(json.loads(values), name=release, namespace=namespace)
    return {
        name.removeprefix("elasticdl/templates/"): text
        for name, text in sorted(texts.items())
        if text.strip()
    }


def objects(values=None, **names):
    """Return the rendered objects by (kind, name)."""
    found = {}
    for name, text in render(values, **names).items():
        if name == "NOTES.txt":
            continue
        for document in yaml.load_all(text, LOADER):
            if document:
                key = document["kind"], document["metadata"]["name"]
                assert key not in found, f"{key} is made twice"
                found[key] = document
    return found


def of_kind(found, kind):
    """Return the one object of a kind."""
    (one,) = (value for (its_kind, _), value in found.items() if its_kind == kind)
    return one


def config_map(found):
    return {
        key: yaml.load(text, LOADER)
        for key, text in of_kind(found, "ConfigMap")["data"].items()
    }


def pods(found):
    """Return each role's pod (metadata and spec), for the master that of its Job."""
    made = config_map(found)
    template = of_kind(found, "Job")["spec"]["template"]
    return {"master": template, "ps": made["ps.yaml"], "worker": made["worker.yaml"]}


def container(pod):
    (one,) = pod["spec"]["containers"]
    return one


def env(pod):
    """Return the environment by name: a value, or what it is taken from."""
    entries = container(pod)["env"]
    found = {
        entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries
    }
    assert len(found) == len(entries), "a name stands there twice"
    return found


def mounts(pod):
    """Return the mounted volumes by path; the volume's source for each."""
    sources = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert len(sources) == len(pod["spec"]["volumes"]), "a volume stands there twice"
    places = container(pod)["volumeMounts"]
    found = {
        mount["mountPath"]: {
            k: v for k, v in sources[mount["name"]].items() if k != "name"
        }
        for mount in places
    }
    assert len(found) == len(places), "two volumes on one path"
    return found


def job(name="digits", **chart_keys):
    """Return the values of a small job; `chart_keys` stand beside it."""
    tree = {
        "name": name,
        "model": {"definition": "a.b"},
        "data": {"training": "data"},
    }
    return {"kind": "job", "job": tree, **chart_keys}


def merged(tree, changes):
    """Return a copy with mappings merged."""
    result = dict(tree)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(tree.get(key), dict)
        result[key] = merged(tree[key], value) if both else value
    return result
