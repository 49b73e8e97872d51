"""A look at processes that hang or died, from inside and from outside. Standard library only."""
