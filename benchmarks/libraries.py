"""One small class per library, all with the same verbs, so that the measuring code knows none of them.

Owns the translation of `Settings` into each library's parameters: what its users would write to train fast.
Must not know problems or clocks, except that `fit` notes the time after each round in `round_ends`.
"""

from __future__ import annotations

import importlib.util
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .cases import Settings
from .problems import Arrays


class Library:
    """What the measuring code may ask.

    Attributes
    ----------
    module : str
        What must be importable.
    round_ends : list of float
        `time.perf_counter()` after each round; empty where rounds make no sense (one model per output).
    """

    module = ""

    def __init__(self, kind: str, settings: Settings):
        self.kind, self.settings = kind, settings
        self.round_ends: list[float] = []
        self.model: Any = None

    def fit(self, data: Arrays) -> None:
        """Train on X, y; with early stopping on X_val, y_val where `settings.patience` is set."""
        raise NotImplementedError

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        """What `scores.py` reads, from the best model or from its first `rounds` rounds."""
        raise NotImplementedError

    def n_rounds(self) -> int:
        """Rounds that `predict` uses."""
        raise NotImplementedError

    def model_bytes(self) -> int:
        """Size of the model in the library's own compact file."""
        raise NotImplementedError

    def _note(self, *_: Any) -> bool:
        self.round_ends.append(time.perf_counter())
        return False

    def _probability(self, values: np.ndarray) -> np.ndarray:
        return values[:, 1] if self.kind == "binary" else values


def _given(**parameters: Any) -> dict[str, Any]:
    """Without those that are None: the library's default holds."""
    return {name: value for name, value in parameters.items() if value is not None}


def _file_size(save: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save(str(path))
        return path.stat().st_size


class Polyleaf(Library):
    module = "polyleaf"

    def fit(self, data: Arrays) -> None:
        import polyleaf

        s = self.settings
        cls = polyleaf.PolyleafRegressor if self.kind == "regression" else polyleaf.PolyleafClassifier
        self.model = cls(
            n_estimators=s.rounds,
            learning_rate=s.learning_rate,
            max_depth=s.max_depth,
            max_leaves=s.max_leaves,
            max_bins=s.max_bins,
            early_stopping_rounds=s.patience,
            n_jobs=s.threads,
            verbose=0,
            **_given(reg_lambda=s.reg_lambda, min_child_samples=s.min_rows),
        )
        eval_set = [(data["X_val"], data["y_val"])] if s.patience else None
        self.model.fit(data["X"], data["y"], eval_set=eval_set, callbacks=[self._note])

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        span = None if rounds is None else (0, rounds)
        if self.kind == "regression":
            return self.model.predict(X, iteration_range=span)
        return self._probability(self.model.predict_proba(X, iteration_range=span))

    def n_rounds(self) -> int:
        best = self.model.best_iteration_
        return self.model.n_iter_ if best is None else best + 1

    def model_bytes(self) -> int:
        return _file_size(self.model.save_model)


class XGBoost(Library):
    module = "xgboost"
    multi_strategy: str | None = None

    def fit(self, data: Arrays) -> None:
        import xgboost

        s = self.settings
        by_leaves = s.max_depth is None
        cls = xgboost.XGBRegressor if self.kind == "regression" else xgboost.XGBClassifier
        self.model = cls(
            tree_method="hist",
            n_estimators=s.rounds,
            learning_rate=s.learning_rate,
            max_bin=s.max_bins,
            max_depth=0 if by_leaves else s.max_depth,
            max_leaves=s.max_leaves if by_leaves else 0,
            grow_policy="lossguide" if by_leaves else "depthwise",
            n_jobs=s.threads,
            verbosity=0,
            callbacks=[_xgboost_clock(self)],
            **_given(
                multi_strategy=self.multi_strategy,
                reg_lambda=s.reg_lambda,
                # It limits the summed curvature, not rows: of squared error this is the number of rows.
                min_child_weight=s.min_rows if self.kind == "regression" else None,
                early_stopping_rounds=s.patience,
            ),
        )
        eval_set = [(data["X_val"], data["y_val"])] if s.patience else None
        self.model.fit(data["X"], data["y"], eval_set=eval_set, verbose=False)

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        span = None if rounds is None else (0, rounds)
        if self.kind == "regression":
            return self.model.predict(X, iteration_range=span)
        return self._probability(self.model.predict_proba(X, iteration_range=span))

    def n_rounds(self) -> int:
        if self.settings.patience:
            return self.model.best_iteration + 1
        return self.model.get_booster().num_boosted_rounds()

    def model_bytes(self) -> int:
        return len(self.model.get_booster().save_raw("ubj"))


def _xgboost_clock(library: XGBoost) -> Any:
    from xgboost.callback import TrainingCallback

    class Clock(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return library._note()

    return Clock()


class XGBoostMultiOutputTree(XGBoost):
    multi_strategy = "multi_output_tree"


class XGBoostOneOutputPerTree(XGBoost):
    multi_strategy = "one_output_per_tree"


class LightGBM(Library):
    """One model per target, all on one Dataset that is binned once; one model for classes."""

    module = "lightgbm"
    extra: dict[str, Any] = {}  # noqa: RUF012

    def fit(self, data: Arrays) -> None:
        import lightgbm

        y = data["y"].reshape(len(data["y"]), -1)
        self.n_classes = int(y.max()) + 1 if self.kind == "multiclass" else 1
        train = lightgbm.Dataset(data["X"], label=y[:, 0], params=self._parameters(), free_raw_data=False)
        val, y_val = None, None
        if self.settings.patience:
            y_val = data["y_val"].reshape(len(data["y_val"]), -1)
            val = train.create_valid(data["X_val"], label=y_val[:, 0])
        self.model = []
        for j in range(y.shape[1]):
            train.set_label(y[:, j])
            if val is not None and y_val is not None:
                val.set_label(y_val[:, j])
            self.model.append(self._train(train, val, note_rounds=y.shape[1] == 1))

    def _train(self, train: Any, val: Any, note_rounds: bool) -> Any:
        import lightgbm

        s = self.settings
        callbacks: list[Any] = [self._note] if note_rounds else []
        if s.patience:
            callbacks.append(lightgbm.early_stopping(s.patience, verbose=False))
        return lightgbm.train(
            self._parameters(),
            train,
            num_boost_round=s.rounds,
            valid_sets=None if val is None else [val],
            callbacks=callbacks,
        )

    def _parameters(self) -> dict[str, Any]:
        s = self.settings
        return {
            "objective": self.kind,
            "num_class": self.n_classes,
            "learning_rate": s.learning_rate,
            "num_leaves": s.max_leaves,
            "max_depth": -1 if s.max_depth is None else s.max_depth,
            "max_bin": s.max_bins,
            "num_threads": s.threads,
            "verbosity": -1,
            **_given(lambda_l2=s.reg_lambda, min_data_in_leaf=s.min_rows),
            **self.extra,
        }

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        each = [
            model.predict(X, num_iteration=rounds, num_threads=self.settings.threads) for model in self.model
        ]
        return each[0] if len(each) == 1 else np.column_stack(each)

    def n_rounds(self) -> int:
        return max(
            model.best_iteration if self.settings.patience else model.current_iteration()
            for model in self.model
        )

    def model_bytes(self) -> int:
        return sum(len(model.model_to_string()) for model in self.model)


class LightGBMQuantized(LightGBM):
    extra = {"use_quantized_grad": True}  # noqa: RUF012


class CatBoost(Library):
    module = "catboost"

    def fit(self, data: Arrays) -> None:
        import catboost

        s = self.settings
        several = data["y"].ndim == 2 and data["y"].shape[1] > 1
        cls = catboost.CatBoostRegressor if self.kind == "regression" else catboost.CatBoostClassifier
        loss = (
            "MultiRMSE"
            if several
            else {"regression": "RMSE", "binary": "Logloss", "multiclass": "MultiClass"}[self.kind]
        )
        shape: dict[str, Any] = {"depth": s.max_depth}
        if s.max_depth is None:  # Lossguide knows no unlimited depth: 16 is the most it takes.
            shape = {"grow_policy": "Lossguide", "max_leaves": s.max_leaves, "depth": 16}
        self.model = cls(
            loss_function=loss,
            iterations=s.rounds,
            learning_rate=s.learning_rate,
            border_count=s.max_bins - 1,
            thread_count=s.threads,
            allow_writing_files=False,
            verbose=False,
            **shape,
            **_given(l2_leaf_reg=s.reg_lambda, early_stopping_rounds=s.patience),
        )
        eval_set = (data["X_val"], data["y_val"]) if s.patience else None
        self.model.fit(data["X"], data["y"], eval_set=eval_set, callbacks=[_CatBoostClock(self)])

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        end = {"ntree_end": rounds or 0, "thread_count": self.settings.threads}
        if self.kind == "regression":
            return self.model.predict(X, **end)
        return self._probability(self.model.predict_proba(X, **end))

    def n_rounds(self) -> int:
        return int(self.model.tree_count_)

    def model_bytes(self) -> int:
        return _file_size(self.model.save_model)


class _CatBoostClock:
    def __init__(self, library: CatBoost):
        self.library = library

    def after_iteration(self, info: Any) -> bool:
        return not self.library._note()


class ScikitLearn(Library):
    """HistGradientBoosting; its threads are those of OMP_NUM_THREADS. It tells nobody when a round ends."""

    module = "sklearn"

    def fit(self, data: Arrays) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        s = self.settings
        cls = HistGradientBoostingRegressor if self.kind == "regression" else HistGradientBoostingClassifier
        self.model = cls(
            max_iter=s.rounds,
            learning_rate=s.learning_rate,
            max_depth=s.max_depth,
            max_leaf_nodes=s.max_leaves,
            max_bins=s.max_bins,
            early_stopping=s.patience is not None,
            **_given(
                l2_regularization=s.reg_lambda, min_samples_leaf=s.min_rows, n_iter_no_change=s.patience
            ),
        )
        val = {"X_val": data["X_val"], "y_val": data["y_val"].squeeze()} if s.patience else {}
        self.model.fit(data["X"], data["y"].squeeze(), **val)

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        if rounds is not None:
            raise ValueError("HistGradientBoosting cannot predict with its first rounds alone.")
        return (
            self.model.predict(X)
            if self.kind == "regression"
            else self._probability(self.model.predict_proba(X))
        )

    def n_rounds(self) -> int:
        return int(self.model.n_iter_)

    def model_bytes(self) -> int:
        return len(pickle.dumps(self.model))


LIBRARIES: dict[str, type[Library]] = {
    "polyleaf": Polyleaf,
    "xgboost": XGBoost,
    "xgboost-multi-output-tree": XGBoostMultiOutputTree,
    "xgboost-one-output-per-tree": XGBoostOneOutputPerTree,
    "lightgbm": LightGBM,
    "lightgbm-quantized": LightGBMQuantized,
    "catboost": CatBoost,
    "sklearn": ScikitLearn,
}


def is_installed(name: str) -> bool:
    """Whether the library of this name can be imported."""
    return importlib.util.find_spec(LIBRARIES[name].module) is not None
