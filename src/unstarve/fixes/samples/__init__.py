"""The structure of a sample: its tree, its values and how they become a batch."""
