"""A dataset of files that hold tensors."""
