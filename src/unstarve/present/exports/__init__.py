"""What other programs read: JSON, Markdown, figures, traces, events, metrics."""
