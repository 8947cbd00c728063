"""The command line: words in, an exit code out. One module a command; nothing is imported before it is needed.

argparse and not click: click alone costs more than a whole run that finds nothing may take (the start-up budget of
ARCHITECTURE.md).
"""

from __future__ import annotations

import sys

COMMANDS = ("check", "rules", "explain", "facts", "probe", "tune")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the first word names it if it is one, else it is `check`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words.pop(0) if words and words[0] in COMMANDS else "check"
    try:
        match command:
            case "rules" | "explain":
                from trl_lint.cli import rules

                return rules.run(command, words)
            case "facts":
                from trl_lint.cli import facts

                return facts.run(words)
            case "probe":
                from trl_lint.cli import probe

                return probe.run(words)
            case "tune":
                from trl_lint.cli import tune

                return tune.run(words)
        from trl_lint.cli import check

        return check.run(words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `trl-lint | head`: the reader has seen enough
        sys.stderr.close()
        return 0
    except UsageError as error:
        print(f"trl-lint: {error}", file=sys.stderr)
        return 2


def entry() -> None:
    """`trl-lint` as a program of its own: run, and leave without taking apart what the system frees anyway.

    Deallocating libcst's classes and the sites of a repository costs as much as judging them.
    """
    import os

    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):  # the reader has gone, or the stream was closed for it
        pass
    os._exit(code)


class UsageError(Exception):
    """What was asked cannot be done; one line says why and what would."""
