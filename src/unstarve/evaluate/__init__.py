"""Measure a loader from inside a script: wrap it, time it, replay it, and draw real against ideal."""
