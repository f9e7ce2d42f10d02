"""exp and logarithms in float64, correctly rounded: the float64 nearest to the exact value."""

from decimal import Decimal, localcontext

import numpy as np

DIGITS = 60


def apply(function, x):
    """Apply a function of decimal numbers to an array of finite float64."""
    with localcontext() as context:
        context.prec = DIGITS
        values = [float(function(Decimal(value))) for value in np.ravel(x).tolist()]
    return np.array(values).reshape(np.shape(x))


def exp(x):
    return apply(lambda value: value.exp(), x)


def log(x):
    return apply(lambda value: value.ln(), x)


def log1p(x):
    # 1 + x of a small x does not fit in the digits: two terms of the series are enough.
    return apply(lambda v: (1 + v).ln() if abs(v) > Decimal("1e-20") else v - v * v / 2, x)
