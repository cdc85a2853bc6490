"""`python -m docs.generate`, as `make docs` runs it."""

import sys

from docs.generate.main import main

sys.exit(main(sys.argv[1:]))
