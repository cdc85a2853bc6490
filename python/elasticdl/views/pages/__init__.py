"""Files of the pages: styles, scripts, templates. Knows nothing else.

`charts.js` draws every chart of both pages; `page.css` is their look.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from importlib import resources
from string import Template

from elasticdl.errors import PlatformError


def read(name: str) -> str:
    """Return the text of a file of this package."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def filled(name: str, **parts: str) -> str:
    """Return a page's text with its included parts."""
    return Template(read(name)).substitute(parts)


def plotly_script() -> bytes:
    """Return plotly.js. Raises PlatformError if its Python package is missing."""
    try:
        import plotly
    except ImportError as error:
        raise PlatformError(
            f"charts are drawn by plotly, which is not there ({error}); install it: "
            "pip install 'elasticdl[report]'"
        ) from None
    return resources.files(plotly).joinpath("package_data/plotly.min.js").read_bytes()


def packed_plotly() -> str:
    """Return plotly.js compressed, as text: 2 MB in a file instead of 4.9 MB."""
    # No time stamp: the same job gives the same file.
    return base64.b64encode(gzip.compress(plotly_script(), mtime=0)).decode()


def data(document: object) -> str:
    """Return a document as JSON that cannot close its script element."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def escaped(text: object) -> str:
    """Return text escaped for an element or a quoted attribute."""
    return html.escape(str(text), quote=True)
