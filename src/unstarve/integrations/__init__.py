"""One module per framework: `lightning`, `transformers`. Nothing else in unstarve imports them."""
