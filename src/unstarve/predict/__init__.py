"""Run → forecast: the model behind whatif, advice and the tuner."""
