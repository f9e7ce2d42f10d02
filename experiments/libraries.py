"""Common interface of the compared libraries, with one small class per library."""

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
    """Interface of a library for the measuring code.

    Attributes
    ----------
    module : str
        Module that must be importable.
    round_ends : list of float
        `time.perf_counter()` after each round; empty if rounds are undefined (one model per
        output).
    """

    module = ""

    def __init__(self, kind: str, settings: Settings):
        self.kind, self.settings = kind, settings
        self.round_ends: list[float] = []
        self.model: Any = None

    def fit(self, data: Arrays) -> None:
        """Train on X, y; stop early on X_val, y_val if `settings.patience` is set."""
        raise NotImplementedError

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        """Return the input of `scores.py`, from the best model or its first `rounds` rounds."""
        raise NotImplementedError

    def n_rounds(self) -> int:
        """Return the number of rounds that `predict` uses."""
        raise NotImplementedError

    def model_bytes(self) -> int:
        """Return the size of the model in the library's own compact file format."""
        raise NotImplementedError

    def _note(self, *_: Any) -> bool:
        self.round_ends.append(time.perf_counter())
        return False

    def _probability(self, values: np.ndarray) -> np.ndarray:
        return values[:, 1] if self.kind == "binary" else values


def _given(**parameters: Any) -> dict[str, Any]:
    """Drop parameters that are None, for which the library's default applies."""
    return {name: value for name, value in parameters.items() if value is not None}


def _columns(y: np.ndarray) -> np.ndarray:
    """Return y as (n, K), also for classes and single targets."""
    return y.reshape(len(y), -1)


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
        cls = (
            polyleaf.PolyleafRegressor if self.kind == "regression" else polyleaf.PolyleafClassifier
        )
        parameters = {
            "n_estimators": s.rounds,
            "learning_rate": s.learning_rate,
            "max_depth": s.max_depth,
            "max_leaves": s.max_leaves,
            "max_bins": s.max_bins,
            "early_stopping_rounds": s.patience,
            "n_jobs": s.threads,
            "verbose": 0,
            "colsample_bynode": 1.0,  # as in the other libraries
            **_given(reg_lambda=s.reg_lambda, min_child_samples=s.min_rows),
        }
        self.model = cls(**(parameters | s.own))
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
            **(
                _given(
                    multi_strategy=self.multi_strategy,
                    reg_lambda=s.reg_lambda,
                    # XGBoost limits the summed Hessian instead of rows: with squared error both are
                    # equal.
                    min_child_weight=s.min_rows if self.kind == "regression" else None,
                    early_stopping_rounds=s.patience,
                )
                | s.own
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
    """LightGBM with one model per target or label on one Dataset, and one model for classes."""

    module = "lightgbm"
    extra: dict[str, Any] = {}  # noqa: RUF012

    def fit(self, data: Arrays) -> None:
        import lightgbm

        y = _columns(data["y"])
        self.n_classes = int(y.max()) + 1 if self.kind == "multiclass" else 1
        train = lightgbm.Dataset(
            data["X"], label=y[:, 0], params=self._parameters(), free_raw_data=False
        )
        val, y_val = None, None
        if self.settings.patience:
            y_val = _columns(data["y_val"])
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
            "objective": "binary" if self.kind == "multilabel" else self.kind,
            "num_class": self.n_classes,
            "learning_rate": s.learning_rate,
            "num_leaves": s.max_leaves,
            "max_depth": -1 if s.max_depth is None else s.max_depth,
            "max_bin": s.max_bins,
            "num_threads": s.threads,
            "verbosity": -1,
            **_given(lambda_l2=s.reg_lambda, min_data_in_leaf=s.min_rows),
            **self.extra,
            **s.own,
        }

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        each = [
            model.predict(X, num_iteration=rounds, num_threads=self.settings.threads)
            for model in self.model
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


class LightGBMLinear(LightGBM):
    """LightGBM with linear models in the leaves."""

    extra = {"linear_tree": True}  # noqa: RUF012


class CatBoost(Library):
    """CatBoost; constant labels raise an error, so they are left out and predicted as constants."""

    module = "catboost"

    def fit(self, data: Arrays) -> None:
        import catboost

        s = self.settings
        y = data["y"]
        self.first, self.varies = y[:1], np.ones(y.shape[1:], bool)
        if self.kind == "multilabel":
            self.varies = y.min(axis=0) < y.max(axis=0)
            y = y[:, self.varies]
        cls = (
            catboost.CatBoostRegressor if self.kind == "regression" else catboost.CatBoostClassifier
        )
        loss = {
            "regression": "MultiRMSE" if y.ndim == 2 and y.shape[1] > 1 else "RMSE",
            "binary": "Logloss",
            "multiclass": "MultiClass",
            "multilabel": "MultiLogloss",
        }[self.kind]
        shape: dict[str, Any] = {"depth": s.max_depth}
        if s.max_depth is None:  # Lossguide has no unlimited depth; the maximum is 16.
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
            **(_given(l2_leaf_reg=s.reg_lambda, early_stopping_rounds=s.patience) | s.own),
        )
        eval_set = None
        if s.patience:
            y_val = data["y_val"][:, self.varies] if self.kind == "multilabel" else data["y_val"]
            eval_set = (data["X_val"], y_val)
        self.model.fit(data["X"], y, eval_set=eval_set, callbacks=[_CatBoostClock(self)])

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        end = {"ntree_end": rounds or 0, "thread_count": self.settings.threads}
        if self.kind == "regression":
            return self.model.predict(X, **end)
        probability = self._probability(self.model.predict_proba(X, **end))
        if self.varies.all():
            return probability
        whole = np.repeat(self.first.astype(float), len(X), axis=0)
        whole[:, self.varies] = probability
        return whole

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
    """HistGradientBoosting with one model per target or label; OMP_NUM_THREADS sets its threads.

    It has no callback at the end of a round.
    """

    module = "sklearn"

    def fit(self, data: Arrays) -> None:
        y, y_val = _columns(data["y"]), _columns(data["y_val"]) if self.settings.patience else None
        self.model = []
        for k in range(y.shape[1]):
            val = {} if y_val is None else {"X_val": data["X_val"], "y_val": y_val[:, k]}
            if self.kind == "multilabel" and y[:, k].min() == y[:, k].max():
                self.model.append(float(y[0, k]))  # a single class raises an error
            else:
                self.model.append(self._new().fit(data["X"], y[:, k], **val))

    def _new(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        s = self.settings
        cls = (
            HistGradientBoostingRegressor
            if self.kind == "regression"
            else HistGradientBoostingClassifier
        )
        given = _given(
            l2_regularization=s.reg_lambda, min_samples_leaf=s.min_rows, n_iter_no_change=s.patience
        )
        return cls(
            max_iter=s.rounds,
            learning_rate=s.learning_rate,
            max_depth=s.max_depth,
            max_leaf_nodes=s.max_leaves,
            max_bins=s.max_bins,
            early_stopping=s.patience is not None,
            **(given | s.own),
        )

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        if rounds is not None:
            raise ValueError("HistGradientBoosting cannot predict with its first rounds alone.")
        each = [self._predict_one(model, X) for model in self.model]
        return each[0] if len(each) == 1 else np.column_stack(each)

    def _predict_one(self, model: Any, X: np.ndarray) -> np.ndarray:
        if isinstance(model, float):
            return np.full(len(X), model)
        if self.kind == "regression":
            return model.predict(X)
        probability = model.predict_proba(X)
        return probability if self.kind == "multiclass" else probability[:, 1]

    def n_rounds(self) -> int:
        return max(int(model.n_iter_) for model in self.model if not isinstance(model, float))

    def model_bytes(self) -> int:
        return len(pickle.dumps(self.model))


class OmniGBDT(Library):
    """Packaged program of GBDT-MO's authors, which reports no end of single rounds.

    It uses doubles, supports no missing values, and returns raw scores of classes and labels.
    """

    module = "omnigbdt"

    def fit(self, data: Arrays) -> None:
        import omnigbdt

        s = self.settings
        if np.isnan(data["X"]).any():
            raise ValueError("it has no place for missing values")
        y = self._targets(data["y"])
        parameters = {
            "loss": {"regression": b"mse", "multiclass": b"ce"}.get(self.kind, b"bce"),
            "lr": s.learning_rate,
            "max_depth": 64 if s.max_depth is None else s.max_depth,
            "max_leaves": s.max_leaves,
            "max_bins": s.max_bins,
            "early_stop": s.patience or 0,
            "num_threads": s.threads,
            "verbose": False,
            "gamma": 0.0,
            **_given(reg_l2=s.reg_lambda, min_samples=s.min_rows),
        }
        n_outputs = int(y.max()) + 1 if self.kind == "multiclass" else y.shape[1]
        self.model = omnigbdt.MultiOutputGBDT(out_dim=n_outputs, params=parameters | s.own)
        val = (
            (data["X_val"].astype(np.float64), self._targets(data["y_val"])) if s.patience else None
        )
        self.model.set_data((data["X"].astype(np.float64), y), val)
        self.model.train(s.rounds)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        if self.kind == "multiclass":
            return y.astype(np.int32)
        return np.ascontiguousarray(
            _columns(y), np.float64 if self.kind == "regression" else np.int32
        )

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        raw = self.model.predict(X.astype(np.float64), rounds or 0)
        if self.kind == "regression":
            return raw
        if self.kind == "multiclass":
            p = np.exp(raw - raw.max(axis=1, keepdims=True))
            return p / p.sum(axis=1, keepdims=True)
        p = 1 / (1 + np.exp(-raw))
        return p[:, 0] if self.kind == "binary" else p

    def n_rounds(self) -> int:
        return self._dumped().count("Booster[")

    def model_bytes(self) -> int:
        return len(self._dumped())

    def _dumped(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self.model.dump(str(path).encode())
            return path.read_text()


class MBTR(Library):
    """Multivariate boosted trees in NumPy and Numba.

    It supports squared error only, without a limit on depth or leaves.
    """

    module = "mbtr"

    def fit(self, data: Arrays) -> None:
        from mbtr.mbtr import MBT

        s = self.settings
        if self.kind != "regression":
            raise ValueError("it knows regression only")
        parameters = {
            "n_boosts": s.rounds,
            "learning_rate": s.learning_rate,
            "n_q": s.max_bins,
            "early_stopping_rounds": s.patience or s.rounds,
            **_given(lambda_weights=s.reg_lambda, min_leaf=s.min_rows),
        }
        self.model = MBT(**(parameters | s.own))
        self.model.fit(data["X"].astype(np.float64), _columns(data["y"]).astype(np.float64))

    def predict(self, X: np.ndarray, rounds: int | None = None) -> np.ndarray:
        return self.model.predict(X.astype(np.float64), n=rounds)

    def n_rounds(self) -> int:
        return len(self.model.trees)

    def model_bytes(self) -> int:
        return len(pickle.dumps(self.model))


LIBRARIES: dict[str, type[Library]] = {
    "polyleaf": Polyleaf,
    "xgboost": XGBoost,
    "xgboost-multi-output-tree": XGBoostMultiOutputTree,
    "xgboost-one-output-per-tree": XGBoostOneOutputPerTree,
    "lightgbm": LightGBM,
    "lightgbm-quantized": LightGBMQuantized,
    "lightgbm-linear": LightGBMLinear,
    "catboost": CatBoost,
    "sklearn": ScikitLearn,
    "omnigbdt": OmniGBDT,
    "mbtr": MBTR,
}


def is_installed(name: str) -> bool:
    """Return whether the library of this name can be imported."""
    return importlib.util.find_spec(LIBRARIES[name].module) is not None
