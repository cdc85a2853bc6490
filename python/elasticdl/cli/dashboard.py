"""`dashboard`: the dashboards in a small web page, for any Prometheus.

Owns the verb's arguments and output. The server is `views.dashboard`'s.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.errors import ElasticDLError, ExitCode, SpecError

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
            "elasticdl dashboard --prometheus https://mimir.example/prometheus "
            "--token-file token --header 'X-Scope-OrgID: team-a'",
        ),
    )
    parser.add_argument(
        "--prometheus",
        required=True,
        metavar="URL",
        help="the Prometheus, as http://localhost:9090",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with the token that the Prometheus asks for (Authorization: "
        "Bearer ...); read once, at the start",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="sent with each question, such as a tenant's; may be said again",
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="the certificate that signed the Prometheus' own, where the system does "
        "not know it (PEM)",
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


def headers_of(said: Sequence[str], token_file: str | None) -> dict[str, str]:
    """Return what is sent with each question. Raises SpecError."""
    headers = {}
    for one in said:
        name, colon, value = one.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise SpecError(
                f"--header: got {name!r}, expected NAME: VALUE, as X-Scope-OrgID: team"
            )
        headers[name] = value.strip()
    if token_file is not None:
        headers["Authorization"] = f"Bearer {_token(Path(token_file))}"
    if wrong := [n for n, value in headers.items() if not value.isprintable()]:
        raise SpecError(
            f"the header {wrong[0]}: got a value of more than one line, or with signs "
            "that cannot be sent; expected one line"
        )
    return headers


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no text of ASCII"
        raise SpecError(
            f"--token-file: got {file} ({why}), expected a file that holds the token"
        ) from None
    if not token:
        raise SpecError(f"--token-file: got {file}, which is empty; expected a token")
    return token


def dashboard(args: argparse.Namespace) -> int:
    from elasticdl.views import pages

    pages.plotly_script()  # told now if it is missing

    from elasticdl.views.dashboard.prometheus import Access, Prometheus
    from elasticdl.views.dashboard.server import Viewer, make_server

    access = Access(
        headers_of(args.header, args.token_file),
        Path(args.ca_file) if args.ca_file else None,
    )
    prometheus = Prometheus(args.prometheus, access)
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
