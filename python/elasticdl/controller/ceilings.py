"""The ceilings of a cluster's resources, as `cpu=0.97,memory=0.97`.

Owns how they are read. Called by `controller.main` and by commands that plan. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.errors import SpecError
from elasticdl.kube.process import pairs_of
from elasticdl.planner.view import Settings


def with_ceilings(settings: Settings, text: str, option: str) -> Settings:
    """Return the settings with other ceilings; what is not named stays.

    Raises SpecError.
    """
    ceilings = dict(settings.ceilings)
    for resource, written in pairs_of(text, option).items():
        try:
            share = float(written)
        except ValueError:
            share = 0.0
        if not 0.0 < share <= 1.0:
            raise SpecError(
                f"{option}: got {resource}={written}, expected a share above 0, at "
                "most 1"
            )
        ceilings[resource] = share
    return replace(settings, ceilings=tuple(sorted(ceilings.items())))
