"""How a model comes about: the loop, and the parts that it is composed of."""
