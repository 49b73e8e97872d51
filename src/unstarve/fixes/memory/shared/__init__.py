"""Python lists and dicts in shared memory: `unstarve.share`."""
