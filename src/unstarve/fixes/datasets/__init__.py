"""One folder per public dataset class; none imports another."""
