"""The oracle: what real TRL does with a configuration, held against what trl-lint says of it. docs/oracle.md explains."""
