"""What must hold whatever a file says, tried on texts that nobody wrote: docs/trust.md says what is promised."""
