"""Where splits cut, in the terms of the features: numbers, categories, words. Must not know: models."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SplitThresholds", "left_categories"]


class SplitThresholds:
    """SplitThresholds of codes in the unit of the features; None where every present value goes left.

    Parameters
    ----------
    mapper : BinMapper
    """

    def __init__(self, mapper: Any):
        self._mapper = mapper
        self._known: dict[tuple[int, int], float | None] = {}

    def value(self, feature: int, code: int) -> float | None:
        """x <= this goes left at a split of the feature after the code; asked for once, then remembered."""
        key = (feature, code)
        if key not in self._known:
            is_last = code >= int(self._mapper.n_bins_[feature]) - 1
            self._known[key] = (
                None if is_last else float(self._mapper.threshold_value(feature, code))
            )
        return self._known[key]

    def rule(self, tree: Any, node: int, name: str) -> str:
        """What goes left at a node of a `_core.Tree` that splits the feature of this name, in words."""
        feature = int(tree.feature[node])
        missing = " or missing" if tree.missing_left[node] else ""
        if tree.category_set[node] >= 0:
            left = left_categories(self._mapper, feature, tree.categories[tree.category_set[node]])
            return f"{name} in {{{', '.join(left)}}}{missing}"
        value = self.value(feature, int(tree.threshold[node]))
        return f"{name} is not missing" if value is None else f"{name} <= {value:.6g}{missing}"


def left_categories(mapper: Any, feature: int, words: np.ndarray) -> list[str]:
    """Categories that go left; those that share the last bin for being rare go together."""
    kept, rare = mapper.categories_[feature], mapper.rare_categories_[feature]

    def goes_left(code: int) -> bool:
        return bool(int(words[code // 64]) >> (code % 64) & 1)

    names = [str(name) for code, name in enumerate(kept) if goes_left(code)]
    return names + ([str(name) for name in rare] if rare and goes_left(len(kept)) else [])
