"""Sparse features: a word matrix stays sparse in training.

Of columns with few non-zero rows only the stored values are kept, so that memory and time grow with
these, not with rows times columns. The trees equal those of the dense matrix.
"""

import numpy as np
import scipy.sparse as sp

from polyleaf import Dataset, PolyleafClassifier


def texts(n: int, n_words: int, seed: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Draw counts of forty words per row, which depend on two topics, the labels (n, 2)."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, n_words + 1)
    words = rng.choice(n_words, (n, 40), p=chance / chance.sum())
    labels = rng.random((n, 2)) < 0.4
    for topic in range(2):
        of_topic = rng.integers(50 + 10 * topic, 60 + 10 * topic, (n, 4))
        words[:, 4 * topic : 4 * topic + 4] = np.where(
            labels[:, [topic]], of_topic, words[:, 4 * topic : 4 * topic + 4]
        )
    rows = np.repeat(np.arange(n), 40)
    counts = sp.csr_matrix((np.ones(words.size, np.float32), (rows, words.ravel())), (n, n_words))
    return counts, labels.astype(int)


def main() -> dict[str, float]:
    X, y = texts(2_000, 20_000, seed=0)
    X_test, y_test = texts(500, 20_000, seed=1)
    data = Dataset(X, y)
    model = PolyleafClassifier(n_estimators=30, max_leaves=8).fit(data, y)
    accuracy = (model.predict(X_test) == y_test).mean()
    megabytes, dense = data.nbytes / 2**20, data.n_rows * data.n_features / 2**20
    print(
        f"two labels, 20,000 words: {accuracy:.3f} right; codes of {megabytes:.1f} MB (dense "
        f"{dense:.0f} MB)"
    )
    return {"accuracy": accuracy, "megabytes": megabytes, "dense megabytes": dense}


if __name__ == "__main__":
    main()
