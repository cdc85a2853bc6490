"""The committed dashboards, as Grafana's JSON says them; the part that is drawn here.

Owns the documents and where they are read from. Used by the other modules of the
viewer. Must not know Prometheus nor pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from elasticdl.errors import NotFoundError

# The order of the tabs; other dashboards come after these.
_ORDER = ("elasticdl-cluster", "elasticdl-job", "elasticdl-ps")


class _Document(BaseModel):
    # Grafana's schema has much that makes no difference here.
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class Place(_Document):
    """Where a panel is, in a grid of 24 columns."""

    x: int = 0
    y: int = 0
    w: int = 24
    h: int = 8


class Target(_Document):
    """One query of a panel."""

    expr: str
    ref_id: str = "A"
    legend_format: str = ""
    instant: bool = False


class Property(_Document):
    """One setting of an override."""

    id: str
    value: Any = None


class Matcher(_Document):
    """Which series or columns an override is for."""

    id: str
    options: Any = None


class Override(_Document):
    """Settings of some series or columns."""

    matcher: Matcher
    properties: Sequence[Property] = ()


class Stacking(_Document):
    """Whether series lie on each other."""

    mode: str = "none"


class Custom(_Document):
    """How lines are drawn."""

    stacking: Stacking = Field(default_factory=Stacking)
    line_interpolation: str = "linear"


class Defaults(_Document):
    """Settings of all series of a panel."""

    unit: str = "none"
    custom: Custom = Field(default_factory=Custom)


class FieldConfig(_Document):
    """Settings of a panel's series."""

    defaults: Defaults = Field(default_factory=Defaults)
    overrides: Sequence[Override] = ()

    def of(self, *, name: str, ref_id: str = "") -> dict[str, Any]:
        """Return the settings of a series or column, by their Grafana names."""
        found: dict[str, Any] = {"unit": self.defaults.unit}
        for override in self.overrides:
            meant = {"byName": name, "byFrameRefID": ref_id}.get(override.matcher.id)
            if meant is not None and meant == override.matcher.options:
                found |= {one.id: one.value for one in override.properties}
        return found


class Options(_Document):
    """What a kind of panel has of its own."""

    text_mode: str = "auto"
    content: str = ""


class Panel(_Document):
    """One panel."""

    id: int
    type: str
    title: str = ""
    description: str = ""
    grid_pos: Place = Field(default_factory=Place)
    targets: Sequence[Target] = ()
    field_config: FieldConfig = Field(default_factory=FieldConfig)
    options: Options = Field(default_factory=Options)


class Variable(_Document):
    """What a user may choose."""

    name: str
    type: str
    label: str = ""
    query: Any = ""
    include_all: bool = False
    multi: bool = False

    @property
    def expression(self) -> str:
        """The query of its values, as `label_values(metric, label)`."""
        query = self.query
        return str(query.get("query", "") if isinstance(query, dict) else query)


class Variables(_Document):
    """All of them."""

    list: Sequence[Variable] = ()


class Mark(_Document):
    """A query of moments that are marked in every chart over time."""

    name: str
    expr: str = ""
    enable: bool = True
    use_value_for_time: bool = False
    title_format: str = ""
    text_format: str = ""


class Marks(_Document):
    """All of them."""

    list: Sequence[Mark] = ()


class Span(_Document):
    """The time that is shown at first."""

    from_: str = Field("now-1h", alias="from")
    to: str = "now"


class Dashboard(_Document):
    """One dashboard."""

    uid: str
    title: str
    description: str = ""
    panels: Sequence[Panel] = ()
    templating: Variables = Field(default_factory=Variables)
    annotations: Marks = Field(default_factory=Marks)
    time: Span = Field(default_factory=Span)
    refresh: str = ""

    @property
    def variables(self) -> list[Variable]:
        """Those that choose something here: the data source is the one given."""
        return [one for one in self.templating.list if one.type == "query"]

    def panel(self, number: int) -> Panel:
        """Return a panel. Raises NotFoundError."""
        found = next((one for one in self.panels if one.id == number), None)
        if found is None:
            raise NotFoundError(f"dashboard {self.uid} has no panel {number}")
        return found


class Boards:
    """The dashboards by uid, in the order of their tabs."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Take the JSON of each."""
        boards = [Dashboard.model_validate_json(text) for text in texts]
        rank = {uid: number for number, uid in enumerate(_ORDER)}
        boards.sort(key=lambda one: (rank.get(one.uid, len(rank)), one.title))
        self._boards = {one.uid: one for one in boards}

    @staticmethod
    def committed() -> Boards:
        """Return those of this package."""
        folder = resources.files("elasticdl.dashboards").joinpath("json")
        files = [one for one in folder.iterdir() if one.name.endswith(".json")]
        return Boards(file.read_text(encoding="utf-8") for file in files)

    def all(self) -> list[Dashboard]:
        """Return all."""
        return list(self._boards.values())

    def one(self, uid: str) -> Dashboard:
        """Return one. Raises NotFoundError with what there is."""
        if uid not in self._boards:
            raise NotFoundError(
                f"no dashboard {uid!r}; there are: {', '.join(self._boards)}"
            )
        return self._boards[uid]
