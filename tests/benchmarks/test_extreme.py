"""The generated extreme data set: sizes, seed, and labels that depend on the features."""

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import extreme
from benchmarks.extreme import main, make_extreme

from polyleaf.files.xmc import read_multilabel
from polyleaf.metrics.ranking import precision_at


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(extreme, "_BLOCK", 3000)


@pytest.mark.parametrize("n_labels", [2000, 100_000])
def test_sizes(n_labels):
    X, Y = make_extreme(5000, n_labels)
    assert (X.shape, X.dtype) == ((5000, 50), np.float32)
    assert isinstance(Y, sp.csr_matrix) and Y.shape == (5000, n_labels)
    assert Y.dtype == np.float32 and (Y.data == 1).all() and Y.has_canonical_format
    counts = np.diff(Y.indptr)
    assert 0.93 * 75 < counts.mean() < 1.07 * 75
    assert counts.min() >= 1 and 10 < counts.std() < 40
    assert np.isfinite(X).all()
    frequency = np.sort(np.bincount(Y.indices, minlength=n_labels))[::-1] / 5000
    assert frequency[0] < 0.5  # no label holds nearly everywhere
    assert frequency[0] > 3 * np.median(frequency)  # and the tail is long


def test_data_depend_on_the_seed():
    X, Y = make_extreme(4000, 1000, labels_per_row=9, n_features=5, n_topics=50, seed=3)
    again, same = make_extreme(7000, 1000, labels_per_row=9, n_features=5, n_topics=50, seed=3)
    np.testing.assert_array_equal(X, again[:4000])
    assert (Y != same[:4000]).nnz == 0
    other, different = make_extreme(4000, 1000, labels_per_row=9, n_features=5, n_topics=50, seed=4)
    assert not np.array_equal(X, other) and (Y != different).nnz > 0


def test_labels_can_be_learnt():
    """The labels of the nearest training rows say far more than the frequency of labels does."""
    from sklearn.neighbors import NearestNeighbors

    X, Y = make_extreme(3000, 1000, labels_per_row=20, n_topics=30)
    train, test = slice(0, 2500), slice(2500, 3000)
    nearest = (
        NearestNeighbors(n_neighbors=30, algorithm="brute")
        .fit(X[train])
        .kneighbors(X[test], return_distance=False)
    )
    by_neighbours = np.stack([np.asarray(Y[rows].sum(axis=0)).ravel() for rows in nearest])
    by_frequency = np.tile(np.asarray(Y[train].sum(axis=0)).ravel(), (500, 1))
    assert precision_at(Y[test], by_neighbours, 3) > 2 * precision_at(Y[test], by_frequency, 3)


def test_too_many_labels_a_row():
    with pytest.raises(ValueError, match="labels_per_row"):
        make_extreme(10, 100, labels_per_row=26)


def test_the_program_writes_a_file(tmp_path, capsys):
    path = tmp_path / "made.txt"
    assert (
        main(
            [
                str(path),
                "--rows",
                "50",
                "--labels",
                "300",
                "--labels-per-row",
                "5",
                "--features",
                "3",
            ]
        )
        == 0
    )
    X, Y = make_extreme(50, 300, labels_per_row=5, n_features=3)
    found = read_multilabel(path)
    np.testing.assert_array_equal(found.X.toarray(), X)
    assert (found.Y != Y).nnz == 0
    assert "50 rows, 3 features, 300 labels" in capsys.readouterr().out
