"""Command-line arguments in, tables, differences or a list of guards out; see `harvest` and `coverage`."""

import sys

from trl_lint.knowledge import coverage, harvest

if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(coverage.main(words[1:]) if words[:1] == ["guards"] else harvest.main(words))
