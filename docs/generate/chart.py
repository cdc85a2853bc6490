"""The chart's files that are made from the code: values.yaml, defaults, README.

Owns their form. Called by `main`. What the keys are is in `job.chart.values` and
`job.spec.job`.
"""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from docs.generate.markdown import row, table

if TYPE_CHECKING:
    from pydantic import BaseModel

CHART = "charts/elasticdl"
_WIDTH = 88
_VALUES_INTRO = """\
# Defaults of the ElasticDL chart. Made by `make docs` from
# python/elasticdl/job/chart/values.py; do not edit.
#
# A release is either the platform or one job. As it stands this file is a platform; a
# job's values file says `kind: job` and holds the tree `job:`, whose fields and
# defaults are in docs/spec.md. Sections that begin with `Job:` or `Platform:` are for
# that kind of release alone, and refused in the other.
kind: platform
"""
_JOB_INTRO = """
# Job: its specification. Name and model function are asked for; the other fields are
# here with their defaults, and docs/spec.md says what each one is.
"""
_DEFAULTS_INTRO = """\
# Made by `make docs` from python/elasticdl/job; do not edit. What templates have to
# know: a job's defaults (the ConfigMap holds the user's tree as it is), the chart's own
# ones, those of each claim, which sections a platform may say for its jobs, and which
# belong to one kind of release.
"""
_README = """\
# The ElasticDL chart

Made by `make docs`; do not edit.

One chart, two kinds of release: the platform, and each job. Kubernetes 1.29 or newer,
Helm 3.14 or newer, or Helm 4.

```sh
# Once for each namespace that jobs run in, with the registry that the images of all its
# jobs are in (`localhost`: on the nodes); the first one makes the PriorityClasses.
helm install elasticdl charts/elasticdl -n ml --create-namespace \\
    --set images.registry=registry.example/team
helm install elasticdl charts/elasticdl -n other --create-namespace \\
    --set images.registry=registry.example/team,priorityClasses.create=false

# A job is a values file, the same that `elasticdl train -f` runs on a laptop.
helm install digits charts/elasticdl -n ml -f values/digits.yaml
helm upgrade digits charts/elasticdl -n ml -f values/digits.yaml   # after an edit of it
helm uninstall digits -n ml
```

## What a release makes

{objects}
PS and workers are made by the master while the job runs. They belong to the ConfigMap,
so `helm uninstall` of the job takes them along. Uninstalling the platform keeps its
claims (`claims[].keep`) and the PriorityClasses, which other namespaces use, and takes
the accounts that running jobs use: uninstall jobs first.

## Changing a release

Pass a job's values file again: `helm upgrade JOB charts/elasticdl -f FILE`. `--set`
alone would forget the file, and is refused; for one field use `elasticdl scale`, or
`helm upgrade JOB charts/elasticdl --reset-then-reuse-values --set
job.worker.replicas=4`. What the ConfigMap holds reaches the running master in seconds;
docs/spec.md says which fields may change while a job runs.

An upgrade sets what the values file says, so put what was changed meanwhile into the
file too. `elasticdl scale` writes as Helm does: nothing stands in the way of the next
upgrade. After `kubectl edit` Helm 4 stops at a conflict on `.data.job.yaml`, unless the
file says the same by now: `--force-conflicts` once, or `elasticdl scale` to another
number, ends it. Helm 3 puts back what the file says, and does not ask.

What the master's own pod is made of (its image, `job.master`, `job.env`, `job.volumes`,
`pods.common`, `pods.master`, `state`) changes with `run` alone, since Kubernetes keeps
a Job's pod template as it is: `run: 2` makes a new Job, and all of the job starts anew
from its newest checkpoint. The same line runs a job again that failed or was stopped.

The chart refuses, in a plain sentence:

- an upgrade that would make a platform of a job, a job of a platform, or another job;
- `job:` without `kind: job`, and sections of one kind in a release of the other;
- a second platform that would make the same PriorityClasses;
- a second job of one name, and a job whose `job.namespace` is not the release's;
- a job that its master would refuse, in the words of `elasticdl validate`;
- a job in a namespace without the platform, or whose claim is not there;
- a stock image without `images.registry`: by its name alone it would be pulled from a
  public registry, where that name may be anybody's.

Where no cluster is asked while rendering (`helm template`, Argo CD), what compares with
the cluster is left to the API server, and token and authority are new ones each time:
gitops/ shows how Argo CD keeps the first ones, elsewhere set `token.existingSecret` and
`tls.existingSecret`. What the platform says, its registry too, is passed as values
there.

## Values

Fields of `job` are in docs/spec.md.

{values}"""
_SHOWN_ELSEWHERE = ("pods.master.", "pods.ps.", "pods.worker.", "jobs.defaults.")
_OBJECTS = (
    (
        "platform",
        "ServiceAccounts `elasticdl-master` (with a Role of that name) and "
        "`elasticdl-job`, ConfigMap `elasticdl.defaults`, NetworkPolicy `elasticdl`, "
        "PersistentVolumeClaims, PriorityClasses `elasticdl-high` and "
        "`elasticdl-low`; with `platform.locked` two ValidatingAdmissionPolicies; "
        "where `monitoring` asks "
        "for them Deployment, Service, ClusterRole and NetworkPolicy "
        "`elasticdl-exporter`, PodMonitors, dashboards and alerts",
    ),
    (
        "job",
        "ConfigMap `elasticdl-<job>` (specification and pod templates), Job and "
        "Service `elasticdl-<job>-master`, Service `elasticdl-<job>-ps`, "
        "PodDisruptionBudget and NetworkPolicy `elasticdl-<job>`, "
        "Secrets `elasticdl-<job>-token` and `elasticdl-<job>-ca`; with "
        "`serviceAccounts.perJob` ServiceAccount and Role `elasticdl-<job>-master`",
    ),
)


def chart_files() -> Iterator[tuple[str, str]]:
    """Yield each generated file of the chart, by path, with its text."""
    yield f"{CHART}/values.yaml", values_yaml()
    yield f"{CHART}/files/defaults.yaml", defaults_yaml()
    yield f"{CHART}/README.md", readme()


def values_yaml() -> str:
    """Return values.yaml: every key with its meaning above it."""
    from elasticdl.job.chart.values import ChartValues

    return _VALUES_INTRO + _job_outline() + "".join(_section(ChartValues, 0))


def _job_outline() -> str:
    """Return a job's fields and their defaults, as comments: a platform has none."""
    from elasticdl.job.spec.job import JobSpec

    defaults = _defaults(JobSpec)
    model = {**defaults["model"], "definition": "digits.cnn.custom_model"}
    tree = {"name": "digits", **defaults, "model": model}
    return _JOB_INTRO + textwrap.indent(_yaml({"job": tree}), "# ")


def _section(model: type[BaseModel], depth: int) -> Iterator[str]:
    from elasticdl.job.chart.defaults import JobDefaults
    from elasticdl.job.chart.pods import PodValues
    from elasticdl.job.values.fields import aliases, model_of
    from pydantic import BaseModel

    indent = "  " * depth
    for key, info in aliases(model).items():
        if not depth:
            yield "\n"
        lines = textwrap.wrap(info.description or "", _WIDTH - len(indent) - 2)
        yield "".join(f"{indent}# {line}\n" for line in lines)
        inner = model_of(info.annotation)
        # Keys of the one are those of `common`, of the other those of the sections:
        # they are shown there, and here only what is written counts.
        if inner in (PodValues, JobDefaults):
            yield f"{indent}{key}: {{}}\n"
        elif inner is not None:
            yield f"{indent}{key}:\n"
            yield from _section(inner, depth + 1)
        else:
            value = info.get_default(call_default_factory=True, validated_data={})
            if isinstance(value, list) and value and isinstance(value[0], BaseModel):
                yield f"{indent}{key}:\n"
                yield from _items(value, depth + 1)
            else:
                yield textwrap.indent(_yaml({key: _plain(value)}), indent)


def _items(items: list[BaseModel], depth: int) -> Iterator[str]:
    """Yield the items of a list, the keys of the first one with their meaning."""
    from elasticdl.job.values.fields import aliases

    indent = "  " * depth
    for number, item in enumerate(items):
        keys = aliases(type(item))
        for place, (key, value) in enumerate(_plain(item).items()):
            if not number:
                text = keys[key].description or ""
                for line in textwrap.wrap(text, _WIDTH - len(indent) - 4):
                    yield f"{indent}  # {line}\n"
            yield f"{indent}{'  ' if place else '- '}{_yaml({key: value})}"


def defaults_yaml() -> str:
    """Return what templates read as `.Files.Get "files/defaults.yaml"`."""
    from elasticdl.job.chart.defaults import JobDefaults
    from elasticdl.job.chart.values import JOB_ONLY, PLATFORM_ONLY, ClaimValues
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.job.values.fields import aliases
    from ruamel.yaml import YAML

    chart = YAML(typ="safe").load(values_yaml())
    del chart["kind"]
    tree = {
        "job": _defaults(JobSpec),
        "chart": chart,
        "claim": _defaults(ClaimValues),
        "fromPlatform": list(aliases(JobDefaults)),
        "jobOnly": list(JOB_ONLY),
        "platformOnly": list(PLATFORM_ONLY),
    }
    return _DEFAULTS_INTRO + _yaml(tree)


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's defaults, without what is required or empty by default."""
    from elasticdl.job.values.fields import aliases, model_of

    found: dict[str, Any] = {}
    for key, info in aliases(model).items():
        inner = model_of(info.annotation)
        if inner is not None and info.default is not None:
            found[key] = _defaults(inner)
        elif not info.is_required() and info.default is not None:
            value = info.get_default(call_default_factory=True, validated_data={})
            found[key] = _plain(value)
    return found


def readme() -> str:
    """Return the chart's README.md."""
    from elasticdl.job.chart.values import ChartValues
    from elasticdl.job.values.fields import documented

    rows = []
    for doc in documented(ChartValues, ""):
        key = doc.path.removeprefix(".")
        if key.startswith(_SHOWN_ELSEWHERE):
            continue  # the keys of pods.common, and of the sections
        plain = doc.default in ("required", "empty")
        default = doc.default if plain else f"`{doc.default}`"
        rows.append(row((f"`{key}`", doc.kind, default, doc.description)))
    return _README.format(
        objects=table(("release", "objects"), [row(cells) for cells in _OBJECTS]),
        values=table(("key", "value", "default", "meaning"), rows),
    )


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, mode="json")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return json.loads(json.dumps(value))


def _yaml(tree: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(tree, out)
    return out.getvalue()
