"""Common interface of the compared libraries, with one small class per library."""

from __future__ import annotations

import importlib.util
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .harness.context import Context, require_module
from .problems import Arrays

Passed = Callable[[float], bool]  # whether this share of the time has passed


@dataclass(frozen=True)
class Settings:
    """Settings common to all libraries.

    None is the library's default. Of depth and leaves, None is no limit if the other is set; then
    trees of all libraries have equal sizes, and Polyleaf uses all features at each node, too.
    `rounds` may be one number for each model of a library that needs several. `own` holds
    parameters under the library's own names, which override all others.
    """

    rounds: int | Sequence[int] | None = None
    max_depth: int | None = None
    max_leaves: int | None = None
    learning_rate: float | None = 0.1
    max_bins: int | None = 255
    reg_lambda: float | None = None
    min_rows: int | None = None
    patience: int | None = None
    threads: int = 2
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def has_size(self) -> bool:
        return self.max_depth is not None or self.max_leaves is not None


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
        self.passed: Passed = lambda share: False
        self.model: Any = None

    def fit(self, data: Arrays) -> None:
        """Train on X, y, until `passed(1.0)`; stop early on X_val, y_val if there is `patience`."""
        raise NotImplementedError

    def predict(self, X: Any, rounds: int | None = None) -> np.ndarray:
        """Return the input of `scores.py`, from the best model or its first `rounds` rounds."""
        span = None if rounds is None else (0, rounds)
        if self.kind == "regression":
            return self.model.predict(X, iteration_range=span)
        return self._probability(self.model.predict_proba(X, iteration_range=span))

    def n_rounds(self) -> int:
        """Return the number of rounds that `predict` uses."""
        raise NotImplementedError

    def rounds_of_models(self) -> list[int]:
        """Return `n_rounds` of each model, if the library needs several."""
        return [self.n_rounds()]

    def n_trained(self) -> int:
        """Return the number of trained rounds of all models, with those after the best."""
        return self.n_rounds()

    def model_bytes(self) -> int:
        """Return the size of the model in the library's own compact file format."""
        return _file_size(self.model.save_model)

    def _note(self, *_: Any) -> bool:
        self.round_ends.append(time.perf_counter())
        return self.passed(1.0)

    def _class(self, regressor: type, classifier: type) -> Any:
        return regressor if self.kind == "regression" else classifier

    def _probability(self, values: np.ndarray) -> np.ndarray:
        return values[:, 1] if self.kind == "binary" else values


def _given(**parameters: Any) -> dict[str, Any]:
    """Drop parameters that are None, for which the library's default applies."""
    return {name: value for name, value in parameters.items() if value is not None}


def _columns(y: np.ndarray) -> np.ndarray:
    """Return y as (n, K), also for classes and single targets."""
    return y.reshape(len(y), -1)


def _stack(columns: Sequence[np.ndarray]) -> np.ndarray:
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def _file_size(save: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save(str(path))
        return path.stat().st_size


class Polyleaf(Library):
    module = "polyleaf"

    def fit(self, data: Arrays) -> None:
        from polyleaf import PolyleafClassifier, PolyleafRegressor

        s = self.settings
        parameters = _given(
            n_estimators=s.rounds, learning_rate=s.learning_rate, max_bins=s.max_bins,
            early_stopping_rounds=s.patience, reg_lambda=s.reg_lambda,
            min_child_samples=s.min_rows, n_jobs=s.threads, verbose=0,
        )  # fmt: skip
        if s.has_size:
            parameters |= {"max_depth": s.max_depth, "max_leaves": s.max_leaves}
            parameters["colsample_bynode"] = 1.0
        self.model = self._class(PolyleafRegressor, PolyleafClassifier)(**(parameters | s.own))
        eval_set = [(data["X_val"], data["y_val"])] if s.patience else None
        callbacks = None if s.rounds is None else [self._note]
        self.model.fit(data["X"], data["y"], eval_set=eval_set, callbacks=callbacks)

    def n_rounds(self) -> int:
        best = self.model.best_iteration_
        return self.model.n_iter_ if best is None else best + 1


class XGBoost(Library):
    module = "xgboost"
    multi_strategy: str | None = None

    def fit(self, data: Arrays) -> None:
        from xgboost import XGBClassifier, XGBRegressor
        from xgboost.callback import TrainingCallback

        library, s = self, self.settings

        class Clock(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return library._note()

        parameters = _given(
            n_estimators=s.rounds, learning_rate=s.learning_rate, max_bin=s.max_bins,
            early_stopping_rounds=s.patience, reg_lambda=s.reg_lambda,
            # XGBoost limits the summed Hessian instead of rows: equal for squared error.
            min_child_weight=s.min_rows if self.kind == "regression" else None,
            multi_strategy=self.multi_strategy, tree_method="hist", n_jobs=s.threads, verbosity=0,
        )  # fmt: skip
        if s.max_depth is not None:
            parameters |= {"max_depth": s.max_depth, "grow_policy": "depthwise"}
        elif s.max_leaves is not None:
            by_leaves = {"max_depth": 0, "grow_policy": "lossguide"}
            parameters |= by_leaves | {"max_leaves": s.max_leaves}
        cls = self._class(XGBRegressor, XGBClassifier)
        self.model = cls(callbacks=[Clock()], **(parameters | s.own))
        eval_set = [(data["X_val"], data["y_val"])] if s.patience else None
        self.model.fit(data["X"], data["y"], eval_set=eval_set, verbose=False)

    def n_rounds(self) -> int:
        # Without an evaluation, if the first round is the last one, there is no best round.
        best = self.model.get_booster().attr("best_iteration")
        return self.n_trained() if best is None else int(best) + 1

    def n_trained(self) -> int:
        return self.model.get_booster().num_boosted_rounds()

    def model_bytes(self) -> int:
        return len(self.model.get_booster().save_raw("ubj"))


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

        s, y = self.settings, _columns(data["y"])
        parameters = _given(
            objective="binary" if self.kind == "multilabel" else self.kind,
            num_class=int(y.max()) + 1 if self.kind == "multiclass" else 1,
            learning_rate=s.learning_rate, max_bin=s.max_bins, lambda_l2=s.reg_lambda,
            min_data_in_leaf=s.min_rows, num_threads=s.threads, verbosity=-1,
            num_leaves=s.max_leaves, max_depth=s.max_depth,
        ) | self.extra | s.own  # fmt: skip
        train = lightgbm.Dataset(data["X"], label=y[:, 0], params=parameters, free_raw_data=False)
        val, y_val = None, None
        if s.patience:
            y_val = _columns(data["y_val"])
            val = train.create_valid(data["X_val"], label=y_val[:, 0])
        rounds = s.rounds if isinstance(s.rounds, Sequence) else [s.rounds or 100] * y.shape[1]
        self.model = []
        for k in range(y.shape[1]):
            train.set_label(y[:, k])
            if val is not None and y_val is not None:
                val.set_label(y_val[:, k])
            model = lightgbm.train(
                parameters, train, rounds[k], None if val is None else [val],
                callbacks=self._callbacks(lightgbm, k, y.shape[1]),
            )  # fmt: skip
            self.model.append(model)

    def _callbacks(self, lightgbm: Any, k: int, n: int) -> list[Any]:
        def note(state: Any) -> None:
            if n == 1:
                self._note()
            if self.passed((k + 1) / n):
                results = state.evaluation_result_list or []
                raise lightgbm.callback.EarlyStopException(state.iteration, results)

        patience = self.settings.patience
        return [note, *([lightgbm.early_stopping(patience, verbose=False)] if patience else [])]

    def predict(self, X: Any, rounds: int | None = None) -> np.ndarray:
        options = {"num_iteration": rounds, "num_threads": self.settings.threads}
        return _stack([model.predict(X, **options) for model in self.model])

    def n_rounds(self) -> int:
        return max(self.rounds_of_models())

    def rounds_of_models(self) -> list[int]:
        if not self.settings.patience:
            return [model.current_iteration() for model in self.model]
        return [model.best_iteration or model.current_iteration() for model in self.model]

    def n_trained(self) -> int:
        return sum(model.current_iteration() for model in self.model)

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
        from catboost import CatBoostClassifier, CatBoostRegressor

        library, s, y = self, self.settings, data["y"]

        class Clock:
            def after_iteration(self, info: Any) -> bool:
                return not library._note()

        self.first, self.varies = y[:1], np.ones(y.shape[1:], bool)
        if self.kind == "multilabel":
            self.varies = y.min(axis=0) < y.max(axis=0)
            y = y[:, self.varies]
        loss = {
            "regression": "MultiRMSE" if y.ndim == 2 and y.shape[1] > 1 else "RMSE",
            "binary": "Logloss",
            "multiclass": "MultiClass",
            "multilabel": "MultiLogloss",
        }[self.kind]
        parameters = _given(
            loss_function=loss, iterations=s.rounds, learning_rate=s.learning_rate,
            border_count=s.max_bins and s.max_bins - 1, l2_leaf_reg=s.reg_lambda,
            early_stopping_rounds=s.patience, depth=s.max_depth, thread_count=s.threads,
            allow_writing_files=False, verbose=False,
        )  # fmt: skip
        if s.has_size and s.max_depth is None:  # Lossguide has no unlimited depth; at most 16.
            parameters |= {"grow_policy": "Lossguide", "max_leaves": s.max_leaves, "depth": 16}
        cls = self._class(CatBoostRegressor, CatBoostClassifier)
        self.model = cls(**(parameters | s.own))
        eval_set = None
        if s.patience:
            y_val = data["y_val"][:, self.varies] if self.kind == "multilabel" else data["y_val"]
            eval_set = (data["X_val"], y_val)
        self.model.fit(data["X"], y, eval_set=eval_set, callbacks=[Clock()])

    def predict(self, X: Any, rounds: int | None = None) -> np.ndarray:
        end = {"ntree_end": rounds or 0, "thread_count": self.settings.threads}
        if self.kind == "regression":
            return self.model.predict(X, **end)
        probability = self._probability(self.model.predict_proba(X, **end))
        if self.varies.all():
            return probability
        whole = np.repeat(self.first.astype(float), X.shape[0], axis=0)
        whole[:, self.varies] = probability
        return whole

    def n_rounds(self) -> int:
        return int(self.model.tree_count_)

    def n_trained(self) -> int:
        curves = self.model.get_evals_result().get("validation", {})
        return max([self.n_rounds(), *map(len, curves.values())])


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
        parameters = _given(
            max_iter=s.rounds, learning_rate=s.learning_rate, max_bins=s.max_bins,
            l2_regularization=s.reg_lambda, min_samples_leaf=s.min_rows,
            n_iter_no_change=s.patience, early_stopping=s.patience is not None,
        )  # fmt: skip
        if s.has_size:
            parameters |= {"max_depth": s.max_depth, "max_leaf_nodes": s.max_leaves}
        cls = self._class(HistGradientBoostingRegressor, HistGradientBoostingClassifier)
        return cls(**(parameters | s.own))

    def predict(self, X: Any, rounds: int | None = None) -> np.ndarray:
        if rounds is not None:
            raise ValueError("HistGradientBoosting cannot predict with its first rounds alone.")
        return _stack([self._predict_one(model, X) for model in self.model])

    def _predict_one(self, model: Any, X: Any) -> np.ndarray:
        if isinstance(model, float):
            return np.full(X.shape[0], model)
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
        parameters = _given(
            loss={"regression": b"mse", "multiclass": b"ce"}.get(self.kind, b"bce"),
            lr=s.learning_rate, max_depth=64 if s.max_depth is None else s.max_depth,
            max_leaves=s.max_leaves, max_bins=s.max_bins, early_stop=s.patience or 0,
            num_threads=s.threads, verbose=False, gamma=0.0, reg_l2=s.reg_lambda,
            min_samples=s.min_rows,
        )  # fmt: skip
        n_outputs = int(y.max()) + 1 if self.kind == "multiclass" else y.shape[1]
        self.model = omnigbdt.MultiOutputGBDT(out_dim=n_outputs, params=parameters | s.own)
        val = None
        if s.patience:
            val = data["X_val"].astype(np.float64), self._targets(data["y_val"])
        self.model.set_data((data["X"].astype(np.float64), y), val)
        self.model.train(s.rounds)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        if self.kind == "multiclass":
            return y.astype(np.int32)
        dtype = np.float64 if self.kind == "regression" else np.int32
        return np.ascontiguousarray(_columns(y), dtype)

    def predict(self, X: Any, rounds: int | None = None) -> np.ndarray:
        from scipy.special import expit, softmax

        raw = self.model.predict(X.astype(np.float64), rounds or 0)
        if self.kind == "regression":
            return raw
        if self.kind == "multiclass":
            return softmax(raw, axis=1)
        return expit(raw)[:, 0] if self.kind == "binary" else expit(raw)

    def n_rounds(self) -> int:
        return self._dumped().count("Booster[")

    def model_bytes(self) -> int:
        return len(self._dumped())

    def _dumped(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self.model.dump(str(path).encode())
            return path.read_text()


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
}


def is_installed(name: str) -> bool:
    """Return whether the library of this name can be imported."""
    return importlib.util.find_spec(LIBRARIES[name].module) is not None


def train(
    name: str, kind: str, data: Arrays, settings: Settings, passed: Passed | None = None
) -> Library:
    """Return a trained library; raise `Unavailable` if it is not installed."""
    require_module(LIBRARIES[name].module)
    library = LIBRARIES[name](kind, settings)
    library.passed = passed or library.passed
    library.fit(data)
    return library


def timed_train(
    context: Context, name: str, kind: str, data: Arrays, settings: Settings, *, warm: bool = False
) -> tuple[Library, float]:
    """Return a trained library and the seconds of training, within the limits of a context.

    `warm` starts its threads with a tiny fit first, so that only training is timed.
    """
    require_module(LIBRARIES[name].module)
    settings = replace(settings, rounds=context.rounds(settings.rounds), threads=context.threads)
    if warm:
        warm_up(name, kind, settings)
    start = time.perf_counter()
    library = train(name, kind, data, settings)
    return library, time.perf_counter() - start


def warm_up(name: str, kind: str, settings: Settings) -> None:
    """Fit and predict with tiny data, to exclude imports and thread start-up from timings."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((64, 4), dtype=np.float32)
    y = {
        "regression": X[:, :2].copy(),
        "multilabel": (X[:, :2] > 0).astype(np.int64),
        "binary": np.arange(64) % 2,
        "multiclass": np.arange(64) % 3,
    }[kind]
    tiny = Settings(rounds=2, max_depth=2, max_leaves=4, threads=settings.threads)
    train(name, kind, {"X": X, "y": y}, tiny).predict(X)
