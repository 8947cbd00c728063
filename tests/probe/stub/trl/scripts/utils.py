import dataclasses
import sys


class TrlParser:
    """Reads flat recipes only."""

    def __init__(self, classes):
        self.classes = classes

    def parse_args_and_config(self):
        given = {}
        with open(sys.argv[sys.argv.index("--config") + 1]) as file:
            for line in file:
                name, _, value = line.partition("#")[0].partition(":")
                given[name.strip()] = value.strip()
        known = {f.name for c in self.classes for f in dataclasses.fields(c)}
        if unknown := sorted(set(given) - known):
            raise ValueError(f"Some specified arguments are not used by the TrlParser: {unknown}")
        return tuple(
            c(**{n: v for n, v in given.items() if n in {f.name for f in dataclasses.fields(c)}}) for c in self.classes
        )
