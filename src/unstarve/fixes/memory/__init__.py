"""Memory of batches and samples: buffers, shared regions, pinned memory, lending."""
