"""What the commands share: options, errors, exit status."""
