"""Metrics of training rounds, of ranked labels, and of whole tasks."""

from __future__ import annotations

from polyleaf.metrics.metric import (
    BoundMetric,
    Metric,
    default_metric,
    default_metrics,
    get_metric,
    get_metrics,
    metric_names,
)
from polyleaf.metrics.queries import QueryMetric

__all__ = [
    "BoundMetric",
    "Metric",
    "QueryMetric",
    "default_metric",
    "default_metrics",
    "get_metric",
    "get_metrics",
    "metric_names",
]


def __dir__() -> list[str]:
    return __all__
