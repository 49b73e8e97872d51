"""One module per framework: `accelerate`, `lightning`, `transformers`. Nothing else in unstarve imports them."""
