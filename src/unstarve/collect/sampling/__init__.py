"""Which functions the time goes to, where no counter can tell."""
