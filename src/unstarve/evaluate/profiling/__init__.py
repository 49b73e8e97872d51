"""In a user's own code: torch.profiler over a few steps, callables against each other, memory."""
