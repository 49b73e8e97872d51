"""Measure a loader from inside a script: wrap it, time it, replay it, and draw real against ideal."""

from __future__ import annotations

from unstarve.present.page import show_results_in_notebooks

show_results_in_notebooks()
