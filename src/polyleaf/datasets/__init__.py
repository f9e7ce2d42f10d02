"""Three small real data sets for demos, examples and tests; ``SOURCES.md`` has their origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

__all__ = ["NAMES", "SmallData", "load"]


def __dir__() -> list[str]:
    return __all__


NAMES = ("energy", "letter", "emotions")


@dataclass(frozen=True)
class SmallData:
    """A data set with its training and test rows.

    Attributes
    ----------
    name : str
        One of `NAMES`.
    X : ndarray of shape (n, n_features), float32
        Features without missing values.
    y : ndarray
        energy: float32 (n, 2), heating and cooling load in kWh per square metre; letter: str (n,),
        "A" to "Z"; emotions: uint8 (n, 6), 1 where the emotion applies.
    feature_names, output_names : tuple of str
        Names of the features, and of the targets, classes or labels.
    train, test : ndarray of int64
        Indices of the training and test rows.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    output_names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray

    def split(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return ``X_train, X_test, y_train, y_test``, like scikit-learn's ``train_test_split``."""
        return self.X[self.train], self.X[self.test], self.y[self.train], self.y[self.test]


def load(name: str) -> SmallData:
    """Read one of the data sets.

    Parameters
    ----------
    name : {"energy", "letter", "emotions"}
        Multi-output regression (768 x 8 -> 2), multiclass (20000 x 16, 26 classes), multi-label
        (593 x 72, 6 labels).

    Returns
    -------
    SmallData

    Raises
    ------
    ValueError
        If there is no data set of this name.
    RuntimeError
        For "letter", if Python was built without the module `lzma`.
    """
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r}; use one of {', '.join(NAMES)}.")
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
    """Decode the compact form of the features (see `SOURCES.md`) to float32."""
    if "X_by_class" in arrays:
        X = np.empty(arrays["X_by_class"].shape, dtype=np.float32)
        X[np.argsort(arrays["y"], kind="stable")] = arrays["X_by_class"]
        return X
    if "X_millionths_above" in arrays:
        cells = np.ascontiguousarray(arrays["X_millionths_above"].transpose(2, 1, 0))
        X = np.empty(cells.shape[:2], dtype=np.float32)
        X[:, arrays["order"]] = (cells.view("<i4")[:, :, 0] + arrays["least"]) / 1e6
        return X
    return arrays["X"].astype(np.float32)
