"""`unstarve.DataLoader`: how batches reach training."""
