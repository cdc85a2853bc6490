"""A whole values file: `kind: job`, the `job:` tree and the chart's keys.

Owns the model of the file. Made by `job.values.checking`; the schema and the sentences
about mistakes are made of it. Must not know YAML.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from elasticdl.job.chart.values import PLATFORM_ONLY, ChartValues
from elasticdl.job.spec.base import SpecModel
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import Problem, ProblemsError


class ValuesFile(ChartValues):
    """A whole values file: `kind: job`, the `job:` tree and the chart's keys.

    Commands on this machine read the job alone; the chart's keys are checked and kept.
    """

    kind: Literal["job"] = Field(
        "job", description="A job; `platform` is not run here."
    )
    job: JobSpec = Field(description="The job.")

    @model_validator(mode="after")
    def _nothing_of_the_platform(self) -> ValuesFile:
        problems = [
            Problem(
                key,
                "a section of the platform's values",
                "those of a job",
                "take it out; it belongs into the values of the platform's release",
            )
            for key in PLATFORM_ONLY
            if _holds(self, key)
        ]
        if problems:
            raise ProblemsError(*problems)
        return self

    def chart_keys(self) -> dict[str, Any]:
        """Return the chart's keys that the file holds, as they stand in it."""
        return self.model_dump(
            by_alias=True, mode="json", exclude_unset=True, exclude={"kind", "job"}
        )


def _holds(values: SpecModel, path: str) -> bool:
    """Return whether a file sets a section, or part of it."""
    key, _, rest = path.partition(".")
    names = {info.alias: name for name, info in type(values).model_fields.items()}
    said = names[key] in values.model_fields_set
    return said and (not rest or _holds(getattr(values, names[key]), rest))
