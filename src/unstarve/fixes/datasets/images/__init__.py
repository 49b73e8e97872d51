"""Images for training: decode only what the crop needs."""
