"""Training on batches: the table is never in memory as a whole.

Two readers call a function that generates the rows; files or a database work the same way. The
model is that of the whole table, byte for byte.
"""

from collections.abc import Iterator

import numpy as np

from polyleaf import Dataset, PolyleafRegressor

Rows = tuple[np.ndarray, np.ndarray]


def batches(n_batches: int = 10, n_rows: int = 2_000) -> Iterator[Rows]:
    """Twenty features and two targets of a batch at a time."""
    for number in range(n_batches):
        rng = np.random.default_rng(number)
        X = rng.normal(size=(n_rows, 20))
        yield X, np.column_stack([X[:, 0] * X[:, 1], X[:, 2]]) + 0.1 * rng.normal(size=(n_rows, 2))


def main() -> dict[str, float]:
    data = Dataset.from_batches(batches)
    model = PolyleafRegressor(n_estimators=30).fit(data)

    X, y = (np.concatenate(parts) for parts in zip(*batches(), strict=True))  # for comparison
    whole = PolyleafRegressor(n_estimators=30).fit(X, y)
    same = model.save_model() == whole.save_model()
    print(
        f"{data.shape}: {data.nbytes / 2**20:.1f} MB of bins, {X.nbytes / 2**20:.1f} MB of float64"
    )
    print("the model of the batches", "is" if same else "is not", "that of the table")
    return {"same": same, "share": data.nbytes / X.nbytes}


if __name__ == "__main__":
    main()
