"""Puts the Helm chart into the wheel, so that an installed `elasticdl` can submit jobs.

Called by hatchling. Where the chart is not beside the package (an image that never
submits), the wheel is built without it.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ChartHook(BuildHookInterface[Any]):
    """Adds charts/elasticdl of the repository as elasticdl/chart."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the chart's folder to what is packed."""
        chart = Path(self.root).parent / "charts" / "elasticdl"
        # An editable install finds it beside the package.
        if version != "editable" and (chart / "Chart.yaml").is_file():
            build_data["force_include"][str(chart)] = "elasticdl/chart"
