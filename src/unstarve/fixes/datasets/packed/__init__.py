"""Many samples in one file: written once, then read at the speed of the storage or of memory."""
