"""Images for training: decode only the pixels that the crop needs."""
