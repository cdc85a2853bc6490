"""Publishing a version: chart, images, and what proves where they come from.

For those who release ElasticDL, not for those who use it: no part of the package. `make
release` calls `main`; docs/releasing.md says what it makes and how others check it.
"""
