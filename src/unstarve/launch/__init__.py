"""A command → a process that is watched: start it, attach to torch's loaders in it, find what it wrote."""
