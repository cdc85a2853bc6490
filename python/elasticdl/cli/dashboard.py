"""`dashboard`: the dashboards in a small web page, for any Prometheus.

Owns the verb's arguments and output. The server is `views.dashboard`'s.
"""

from __future__ import annotations

import argparse
import sys
import time
import webbrowser

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.errors import ElasticDLError, ExitCode

_PORT = 8090  # Beside Prometheus' 9090 and the 8080 of metrics.


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "dashboard",
        handler=dashboard,
        help_text="show the dashboards in a web page, from a Prometheus",
        description="Shows the dashboards Cluster, Job and Parameter servers in a "
        "small web page, with\nthe figures of a Prometheus that scrapes the jobs. No "
        "Grafana is needed; it has the\nsame dashboards, from the folder dashboards/ "
        "or the chart. Ctrl-C ends it.",
        examples=(
            "elasticdl dashboard --prometheus http://localhost:9090",
            "elasticdl dashboard --prometheus http://localhost:9090 --open --port 8091",
        ),
    )
    parser.add_argument(
        "--prometheus",
        required=True,
        metavar="URL",
        help="the Prometheus, as http://localhost:9090",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        metavar="N",
        help=f"where the page is served (default {_PORT}; 0 is any free one)",
    )
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="who may see it (default 127.0.0.1: this machine; 0.0.0.0: everybody who "
        "reaches it, without a password)",
    )
    parser.add_argument(
        "--open", action="store_true", help="show it in the browser then"
    )


def dashboard(args: argparse.Namespace) -> int:
    from elasticdl.views import pages

    pages.plotly_script()  # told now if it is missing

    from elasticdl.views.dashboard.prometheus import Prometheus
    from elasticdl.views.dashboard.server import Viewer, make_server

    prometheus = Prometheus(args.prometheus)
    viewer = Viewer(prometheus, time.time)
    server = make_server(viewer, bind=args.bind, port=args.port)
    url = f"http://{args.bind}:{server.server_port}/"
    try:
        prometheus.check()
    except ElasticDLError as error:
        # The page says so too, and shows charts as soon as it answers.
        print(f"warning: {error}", file=sys.stderr)
    print(f"dashboards of {prometheus.url}: {url} (Ctrl-C ends it)", flush=True)
    if args.open and not webbrowser.open(url):
        print("no browser was found here; open the address yourself")
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return ExitCode.OK
