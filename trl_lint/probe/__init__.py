"""A training script in; out what its fixes do to it on this machine: measured, compared and recorded."""
