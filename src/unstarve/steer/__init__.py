"""Changes the loaders of an unmodified script: engine, saved settings, tuning, replay."""
