"""Command-line arguments in, tables or differences out; see `harvest`."""

import sys

from trl_lint.knowledge.harvest import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
