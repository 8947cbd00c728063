"""`python -m trl_lint` is `trl-lint`."""

from trl_lint.cli import entry

entry()
