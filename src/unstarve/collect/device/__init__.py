"""What the accelerator did while training waited for data."""
