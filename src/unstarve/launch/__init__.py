"""A command → a process that is watched: start it, attach to torch's loaders inside it, see what it left."""
