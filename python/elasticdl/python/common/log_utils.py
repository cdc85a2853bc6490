"""The logger that classic modules write to.

Owns its name; its lines go where the role's own lines go. For user modules alone.
"""

from __future__ import annotations

import logging

default_logger = logging.getLogger("elasticdl.user")
