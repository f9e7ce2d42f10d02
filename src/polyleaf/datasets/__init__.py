"""Three small real data sets that come with the package: for the demo, the examples and the tests.

Owns the files beside it (``SOURCES.md`` says where they come from) and how they are read; knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

__all__ = ["NAMES", "SmallData", "load"]

NAMES = ("energy", "letter", "emotions")


@dataclass(frozen=True)
class SmallData:
    """One data set with its split.

    Attributes
    ----------
    name : str
        One of `NAMES`.
    X : ndarray of shape (n, n_features), float32
        Features; none is missing.
    y : ndarray
        energy: float32 (n, 2), heating and cooling load in kWh per square metre; letter: str (n,), "A" to
        "Z"; emotions: uint8 (n, 6), 1 where the emotion applies.
    feature_names, output_names : tuple of str
        Names of the columns of `X`, and of the targets, classes or labels.
    train, test : ndarray of int64
        Row numbers of the two parts.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    output_names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray

    def split(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """``X_train, X_test, y_train, y_test``, in the order of scikit-learn's ``train_test_split``."""
        return self.X[self.train], self.X[self.test], self.y[self.train], self.y[self.test]


def load(name: str) -> SmallData:
    """Read one of the data sets.

    Parameters
    ----------
    name : {"energy", "letter", "emotions"}
        Multi-output regression (768 x 8 -> 2), multi-class (20000 x 16, 26 classes), multi-label (593 x 72,
        6 labels).

    Returns
    -------
    SmallData

    Raises
    ------
    ValueError
        When there is no data set of this name.
    RuntimeError
        For "letter", where Python was built without the module `lzma`.
    """
    if name not in NAMES:
        raise ValueError(
            f"There is no data set {name!r} in the package; there are {', '.join(NAMES)}."
        )
    with (
        (files(__name__) / f"{name}.npz").open("rb") as stream,
        np.load(stream, allow_pickle=False) as arrays,
    ):
        y, outputs, is_test = arrays["y"], arrays["output_names"], arrays["is_test"]
        return SmallData(
            name=name,
            X=_features(arrays),
            y=outputs[y] if name == "letter" else y,
            feature_names=tuple(arrays["feature_names"].tolist()),
            output_names=tuple(outputs.tolist()),
            train=np.flatnonzero(~is_test),
            test=np.flatnonzero(is_test),
        )


def _features(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """As float32, from what takes the least place (`SOURCES.md`)."""
    if "X_by_class" in arrays:
        X = np.empty(arrays["X_by_class"].shape, dtype=np.float32)
        X[np.argsort(arrays["y"], kind="stable")] = arrays["X_by_class"]
        return X
    if "X_millionths_above" in arrays:
        of_cells = np.ascontiguousarray(arrays["X_millionths_above"].transpose(2, 1, 0))
        X = np.empty(of_cells.shape[:2], dtype=np.float32)
        X[:, arrays["order"]] = (of_cells.view("<i4")[:, :, 0] + arrays["least"]) / 1e6
        return X
    return arrays["X"].astype(np.float32)
