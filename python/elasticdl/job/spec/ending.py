"""The part of a specification that says who is told of a job's end.

Owns `onEnd`. Used by `job.spec.job`; carried out by `master.telling.on_end`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from elasticdl.job.spec.base import PositiveSeconds, SpecModel
from elasticdl.job.spec.problems import Problem, ProblemsError

WEBHOOK_PATTERN = r"^(https?://\S+)?$"
WEBHOOK_TRIES = 3  # A receiver that fails three times is down for longer.


class OnEndSpec(SpecModel):
    """Whom to notify when the job has ended, in any way. Never changes the outcome."""

    command: list[str] = Field(
        default_factory=list,
        description="A command as a list of words, run where the master runs, with "
        "`ELASTICDL_JOB`, `ELASTICDL_NAMESPACE`, `ELASTICDL_STATE`, "
        "`ELASTICDL_MESSAGE` and `ELASTICDL_REPORT` (path of report.json) in its "
        "environment. In a cluster it starts in `/`.",
    )
    webhook: str = Field(
        "",
        pattern=WEBHOOK_PATTERN,
        description="A URL that gets a POST of a JSON with `name`, `namespace`, "
        "`state`, `message` and the figures of the `report`; tried three times.",
    )
    webhook_from: str = Field(
        "",
        pattern="^([A-Za-z_][A-Za-z0-9_]*)?$",
        description="In its place: the variable of the master's environment that holds "
        "the URL, where that is a secret; in a cluster from a Secret by "
        "`pods.master.env`.",
    )
    timeout_seconds: PositiveSeconds = Field(
        30.0, description="What the command, and each try of the webhook, may take."
    )

    @model_validator(mode="after")
    def _one_address(self) -> OnEndSpec:
        if self.webhook and self.webhook_from:
            expected = "one of `webhook` and `webhookFrom`"
            raise ProblemsError(Problem("", "both", expected, "take one of them out"))
        return self

    @property
    def has_webhook(self) -> bool:
        """Whether a URL is called."""
        return bool(self.webhook or self.webhook_from)

    def url(self, environ: Mapping[str, str]) -> str:
        """Return the URL of the webhook, "" where the environment has none."""
        return self.webhook or environ.get(self.webhook_from, "").strip()

    @property
    def most_seconds(self) -> float:
        """Seconds that all notifications may take, retries and pauses included."""
        tries = bool(self.command) + WEBHOOK_TRIES * self.has_webhook
        return tries * (self.timeout_seconds + 5.0)
