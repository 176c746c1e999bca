"""A task that needs a sink under softmax, and the models that are trained on it."""
