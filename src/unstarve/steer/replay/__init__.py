"""Real batches, kept and handed out again: training as if loading were free."""
