"""The part of a specification that says who is told of a job's end.

Owns `onEnd`. Used by `job.spec.job`; carried out by `master.telling.on_end`.
"""

from __future__ import annotations

from pydantic import Field

from elasticdl.job.spec.base import PositiveSeconds, SpecModel

WEBHOOK_PATTERN = r"^(https?://\S+)?$"
WEBHOOK_TRIES = 3  # A receiver that fails three times is down for longer.


class OnEndSpec(SpecModel):
    """Whom to notify when the job has ended, in any way. Never changes the outcome."""

    command: list[str] = Field(
        default_factory=list,
        description="A command as a list of words, run where the master runs, with "
        "`ELASTICDL_JOB`, `ELASTICDL_NAMESPACE`, `ELASTICDL_STATE`, "
        "`ELASTICDL_MESSAGE` and `ELASTICDL_REPORT` (path of report.json) in its "
        "environment.",
    )
    webhook: str = Field(
        "",
        pattern=WEBHOOK_PATTERN,
        description="A URL that gets a POST of a JSON with `name`, `namespace`, "
        "`state`, `message` and the figures of the `report`; tried three times.",
    )
    timeout_seconds: PositiveSeconds = Field(
        30.0, description="What the command, and each try of the webhook, may take."
    )

    @property
    def most_seconds(self) -> float:
        """Seconds that all notifications may take, retries and pauses included."""
        tries = bool(self.command) + WEBHOOK_TRIES * bool(self.webhook)
        return tries * (self.timeout_seconds + 5.0)
