"""The dashboard of a job's group (strategy allReduce): rounds, members, waits, bytes.

Owns its panels. Called by `boards`.
"""

from __future__ import annotations

from elasticdl.dashboards.board import Board, Panel, PanelKind, Query, Row
from elasticdl.dashboards.selectors import of_job, rate

_ROUND = of_job("elasticdl_group_round")
_RANK = f"max by (worker) ({of_job('elasticdl_group_member_rank')})"
_WAIT = f"max by (worker) ({of_job('elasticdl_group_wait_seconds')})"
_BYTES = f"max by (worker) ({of_job('elasticdl_group_step_bytes')})"
_SENT = of_job("elasticdl_worker_gradient_sent_bytes_total")
_FORMED = of_job("elasticdl_group_round_timestamp_seconds")
_OUT = of_job("elasticdl_group_out")

_NOW = Row(
    "The round",
    (
        Panel(
            "Why the round began",
            PanelKind.STAT,
            "The cause of the newest round. `elasticdl explain` names the members.",
            shows_name=True,
            width=6,
            height=4,
            queries=(Query(f"max by (cause) ({_ROUND})", "{{cause}}"),),
        ),
        Panel(
            "Last change of rounds",
            PanelKind.STAT,
            "How long ago the round was formed, and what the change cost: from the "
            "last step of the round before until the first one of this was made.",
            unit="s",
            width=9,
            height=4,
            queries=(
                Query(f"time() - max({_FORMED})", "ago"),
                Query(f"max({of_job('elasticdl_group_change_seconds')})", "cost"),
            ),
        ),
        Panel(
            "Rounds so far",
            PanelKind.STAT,
            "How many rounds there were, and what all changes of them cost.",
            width=9,
            height=4,
            queries=(
                Query(f"max({_ROUND})", "rounds"),
                Query(
                    f"max({of_job('elasticdl_group_changes_seconds_total')})",
                    "cost",
                    unit="s",
                ),
            ),
        ),
        Panel(
            "Members",
            PanelKind.TABLE,
            "One line for each member of the round: its place by age, of which 0 "
            "leads; how long it waits for others in a step, on average; what it sends "
            "for a step's gradients. The others wait for whoever waits least.",
            width=24,
            columns=(("worker", "worker"),),
            queries=(
                Query(_RANK, "place"),
                Query(_WAIT, "waits", unit="s"),
                Query(_BYTES, "sends", unit="bytes"),
            ),
        ),
    ),
)

_COURSE = Row(
    "Over time",
    (
        Panel(
            "In and out",
            PanelKind.TIMESERIES,
            "Members of the round, and workers that run and are in none, by why.",
            unit="short",
            steps=True,
            queries=(
                Query(f"count({_RANK})", "members"),
                Query(f"sum by (cause) ({_OUT})", "out: {{cause}}"),
            ),
        ),
        Panel(
            "Number of the round",
            PanelKind.TIMESERIES,
            "Each step up is a change: a member came, left or was not reached.",
            unit="short",
            steps=True,
            queries=(Query(f"max({_ROUND})", "round"),),
        ),
        Panel(
            "Wait for others in a step",
            PanelKind.TIMESERIES,
            "Mean of each member's last steps. A line far below the others is the "
            "member that they wait for.",
            unit="s",
            queries=(Query(_WAIT, "worker {{worker}}"),),
        ),
        Panel(
            "Gradients sent",
            PanelKind.TIMESERIES,
            "Bytes of gradients that each worker sends to others.",
            unit="Bps",
            queries=(Query(f"sum by (index) ({rate(_SENT)})", "worker {{index}}"),),
        ),
        Panel(
            "What the group costs",
            PanelKind.TIMESERIES,
            "Workers that train, wait for others in a step, or stand between two "
            "rounds: worker seconds per second.",
            unit="short",
            stacked=True,
            width=24,
            queries=tuple(
                Query(
                    "sum("
                    + rate(of_job("elasticdl_goodput_seconds_total", cause=cause))
                    + ")",
                    cause,
                )
                for cause in ("train", "waitPeers", "regroup")
            ),
        ),
    ),
)

BOARD = Board(
    uid="elasticdl-group",
    title="ElasticDL / Group",
    description="Workers of one job that make steps together (strategy allReduce).",
    rows=(_NOW, _COURSE),
)
