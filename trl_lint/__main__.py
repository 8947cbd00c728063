"""`python -m trl_lint` is `trl-lint`."""

import sys

from trl_lint.cli import main

sys.exit(main())
