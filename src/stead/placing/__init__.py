"""From a model and devices to a plan: load the question, attempt it, say what helps where nothing fits."""
