"""What a command would run, how long, with how much memory."""
