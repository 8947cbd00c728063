"""A file and what was said by hand in; out the `Facts` to judge it by: versions and hardware, each with its origin.

`gather` is the door and `describe` prints what it found. Nothing is imported, run or fetched to find a fact out.
"""

from __future__ import annotations

from trl_lint.facts.folders import forget
from trl_lint.facts.gathering import describe, gather
from trl_lint.facts.words import WATCHED, Fact, Facts, FactsError, Hardware, Overrides, Stated

__all__ = ["WATCHED", "Fact", "Facts", "FactsError", "Hardware", "Overrides", "Stated", "describe", "forget", "gather"]
