"""trl-lint: reads TRL training code, says what will crash or crawl on the release at hand, and rewrites it."""

__version__ = "0.1.0"
