"""Watch a loader in production: logs, charts, metrics, and a callback when waiting changes."""
