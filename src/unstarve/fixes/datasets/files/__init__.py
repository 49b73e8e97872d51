"""Datasets of files with tensors in them, read natively."""
