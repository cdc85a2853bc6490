"""Dashboards as Grafana's JSON, made with its own typed builders.

Owns the form. Called by `dashboards`; the JSON is committed, so that neither users nor
the chart need the builders (of the extra `dev`). Must not know any metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from elasticdl.dashboards import choices
from elasticdl.dashboards.board import Board, Panel, PanelKind, Query, Row, places
from elasticdl.dashboards.choices import Mark
from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

_TAG = "elasticdl"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_ALL = models.VariableOption(text="All", value="$__all")
_AnyPanel = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel


class _AnnotationQuery(models.AnnotationQuery):
    """Marks membership changes; the builders lack what Prometheus' annotations have.

    The value of the series is the time to mark, so that a mark stands where the change
    was, and not at each scrape after it.
    """

    def __init__(self, mark: Mark) -> None:
        super().__init__(
            name=mark.name, datasource=_SOURCE, icon_color="orange", expr=mark.expr
        )
        self._mark = mark

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {
            "useValueForTime": True,
            "titleFormat": self._mark.title,
            "textFormat": self._mark.text,
            "step": "10s",
        }


class _Membership(Builder[models.AnnotationQuery]):
    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def build(self) -> models.AnnotationQuery:
        return _AnnotationQuery(self._mark)


def dashboard_json(board: Board) -> str:
    """Return a dashboard as text, with a newline at its end."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([_TAG])
        .editable()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(choices.BEGIN, choices.END)
        .timezone("browser")
        .refresh(choices.REFRESH)
        .annotation(_Membership(choices.membership_changes(board)))
        .link(
            dashboard.DashboardLink("ElasticDL")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .include_vars(True)
            .keep_time(True)
            .as_dropdown(False)
        )
    )
    for variable in _variables(board):
        made = made.with_variable(variable)
    for place in places(board):
        grid = models.GridPos(h=place.height, w=place.width, x=place.x, y=place.y)
        if isinstance(place.item, Row):
            row = dashboard.Row(place.item.title).id(place.number).grid_pos(grid)
            made = made.with_row(row)
        else:
            made = made.with_panel(_panel(place.item, place.number, grid))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variables(
    board: Board,
) -> Iterator[dashboard.DatasourceVariable | dashboard.QueryVariable]:
    yield (
        dashboard.DatasourceVariable("datasource")
        .label("Prometheus")
        .type("prometheus")
    )
    for one in choices.variables(board):
        query = f"label_values({one.series}, {one.label})"
        variable = (
            dashboard.QueryVariable(one.name)
            .label(one.title)
            .datasource(_SOURCE)
            .query({"query": query, "refId": one.name})
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
        )
        if one.with_all:
            variable = variable.include_all(True).current(_ALL)
        if one.several:
            variable = variable.multi(True)
        if one.name == "cluster":
            # One that is not said counts as all: the label is there for many alone.
            variable = variable.all_value(".*")
        yield variable


def _panel(panel: Panel, number: int, grid: models.GridPos) -> _AnyPanel:
    made = _of_kind(panel)
    made = (
        made.id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .grid_pos(grid)
        .unit(panel.unit)
    )
    is_table = panel.kind is PanelKind.TABLE
    for index, query in enumerate(panel.queries):
        ref_id = chr(ord("A") + index)
        target = prometheus.Dataquery().expr(query.expr).ref_id(ref_id)
        over_time = panel.kind is PanelKind.TIMESERIES
        target = target.range() if over_time else target.instant()
        if is_table:
            target = target.format(prometheus_models.PromQueryFormat.TABLE)
        else:
            target = target.legend_format(query.name)
        made = made.with_target(target)
        if not is_table and (properties := list(_properties(query))):
            made = made.override_by_query(ref_id, properties)
    return _as_table(made, panel) if isinstance(made, table.Panel) else made


def _of_kind(panel: Panel) -> _AnyPanel:
    if panel.kind is PanelKind.TIMESERIES:
        return _timeseries(panel)
    if panel.kind is PanelKind.TABLE:
        return table.Panel().show_header(True)
    newest = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    if panel.kind is PanelKind.BARGAUGE:
        return (
            bargauge.Panel()
            .reduce_options(newest)
            .orientation(common_models.VizOrientation.HORIZONTAL)
            .display_mode(common_models.BarGaugeDisplayMode.BASIC)
            .min(0)
        )
    word = common_models.BigValueTextMode
    return (
        stat.Panel()
        .reduce_options(newest)
        .text_mode(word.NAME if panel.shows_name else word.VALUE_AND_NAME)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.NONE)
    )


def _timeseries(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .draw_style(common_models.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(60 if panel.stacked else 0)
        .show_points(common_models.VisibilityMode.AUTO)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    if panel.steps:
        made = made.line_interpolation(common_models.LineInterpolation.STEP_AFTER)
    if panel.stacked:
        normal = common_models.StackingMode.NORMAL
        made = made.stacking(common.StackingConfig().mode(normal).group("A"))
    return made


def _properties(query: Query) -> Iterator[models.DynamicConfigValue]:
    if query.unit:
        yield models.DynamicConfigValue("unit", query.unit)
    if query.right:
        yield models.DynamicConfigValue("custom.axisPlacement", "right")


def _as_table(made: table.Panel, panel: Panel) -> table.Panel:
    hidden = models.DynamicConfigValue("custom.hidden", True)
    made = made.override_by_name("Time", [hidden])
    for label, title in panel.columns:
        named = models.DynamicConfigValue("displayName", title)
        made = made.override_by_name(label, [named])
    many = len(panel.queries) > 1
    for index, query in enumerate(panel.queries):
        column = f"Value #{chr(ord('A') + index)}" if many else "Value"
        named = models.DynamicConfigValue("displayName", query.name)
        properties = [named, *_properties(query)] if query.name else [hidden]
        made = made.override_by_name(column, properties)
    if many:  # one line for each set of labels, one column for each query
        made = made.with_transformation(
            models.DataTransformerConfig("merge", options={})
        )
    return made
