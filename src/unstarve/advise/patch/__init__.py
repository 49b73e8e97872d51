"""Loader settings written into the user's own source: the one call changed, everything else left alone."""
