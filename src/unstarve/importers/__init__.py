"""Files of other profilers → a run: nsys SQLite exports and torch.profiler traces."""
