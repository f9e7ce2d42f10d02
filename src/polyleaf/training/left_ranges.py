"""The check for features that leave the range of earlier rows, in which trees are constant."""

from __future__ import annotations

import numpy as np

from polyleaf.binned_data.binning import BinMapper
from polyleaf.runtime.user_warnings import warn_user

# The middle of the earlier values, and the share of held-out rows beyond it from which fits warn.
MIDDLE, SHARE_OF_WARNING = 0.9, 0.3
_MIN_ROWS, _MAX_NAMES = 50, 5


def warn_of_left_ranges(
    mapper: BinMapper,
    earlier: np.ndarray,
    later: np.ndarray,
    outside: np.ndarray | None = None,
    init: object = None,
) -> None:
    """Warn of numeric features that many held-out rows have beyond the values of earlier rows.

    `earlier`, `later`: rows of each bin, see `Dataset.count_bins`. `outside` (n_features,): later
    rows beyond the range of the bins, if these are of the earlier rows alone. `init`: the
    parameter.
    """
    shares, begin = {}, 0
    for column in np.flatnonzero(mapper.counted_columns_).tolist():
        n_bins = int(mapper.n_bins_[column])
        before, after = (counts[begin : begin + n_bins] for counts in (earlier, later))
        begin += n_bins + 1
        if mapper.is_categorical_[column] or min(before.sum(), after.sum()) < _MIN_ROWS:
            continue
        below = np.cumsum(before)
        tail = (1 - MIDDLE) / 2 * below[-1]
        is_beyond = (below <= tail) | (below - before >= below[-1] - tail)
        n_beyond = max(after[is_beyond].sum(), 0 if outside is None else outside[column])
        if n_beyond >= SHARE_OF_WARNING * after.sum():
            shares[column] = n_beyond / after.sum()
    if not shares:
        return
    names = mapper.column_names_
    worst = sorted(shares, key=lambda column: -shares[column])
    listed = [f"{names[f] if names else f'f{f}'} ({shares[f]:.0%})" for f in worst[:_MAX_NAMES]]
    more = f" and {len(worst) - _MAX_NAMES} more" if len(worst) > _MAX_NAMES else ""
    hint = ', or try a linear model beside the trees (init="auto")' if init is None else ""
    warn_user(
        f"In order of time, features leave the range of earlier rows: {', '.join(listed)}{more} of "
        f"the held-out rows are beyond the middle {MIDDLE:.0%} of the earlier values, where "
        f"{1 - MIDDLE:.0%} are expected. Trees are constant beyond their range: leave these "
        f"features out, or replace them by differences to earlier values{hint}."
    )
