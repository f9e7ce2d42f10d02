"""Distributed training gives the bytes of a single process, for any partition of the rows."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from support import golden
from support.distributed_fits import fit_on_threads
from support.golden import CONFIGURATIONS, SMALL, expected

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, RowData, _core
from polyleaf.binned_data.random_rows import ROWS, draw, draw_ids
from polyleaf.estimators.distributed_fit import RowBlocks, read_shard
from polyleaf.objectives.elementwise import SquaredError
from polyleaf.runtime.collective import ThreadCommunicator, WorkerLostError
from polyleaf.runtime.context import Context
from polyleaf.sketching.sketches import SKETCHES
from polyleaf.training.sampling import GlobalRowIds, sample_rows
from polyleaf.user_data import target_scaling

SIZES = (1, 2, 3, 5)  # with three or more ranks, one has no rows

# Message for each unsupported configuration.
UNSUPPORTED = {"validation": "validation_fraction"}
SHARED = sorted(CONFIGURATIONS.keys() - UNSUPPORTED.keys())
FAST = [
    "defaults",
    "by level",
    "frame with categories",
    "weights, sampled",
    "goss",
    "quantiles as they are",
    "layers of medians",
    "missing targets",
    "normalized targets",
    "layers on fewer rows",
    "tfbt_full",
    "sparse leaves",
    "one tree an output, renewed",
    "gbdt_pl",
    "gbdt_sparse",
    "sparse Y, exact",
    "sparse Y, values",
    "sparse Y, weights",
    "lambdarank",
    "yetirank",
]


def assert_ranks_equal_one_machine(estimator, X, y, size, rows=None, **fit):
    """Compare the model of each rank with that of one process."""
    alone = clone(estimator).fit(X, y, **fit).save_model()
    for fitted in fit_on_threads(estimator, X, y, size, rows=rows, **fit):
        assert fitted.save_model() == alone


def fit_on_ranks(name, size):
    """Return the models of all ranks of a configuration."""
    kind, X, y, fit, parameters = CONFIGURATIONS[name]
    estimator = kind(**SMALL | parameters | {"n_estimators": SMALL["n_estimators"]}, n_jobs=1)
    X, fit = X(), {} if fit is None else fit()
    y = X.y if y is None else y()
    for rounds in (3, 5) if estimator.warm_start else (3,):
        fitted = fit_on_threads(estimator.set_params(n_estimators=rounds), X, y, size, **fit)
        estimator = fitted[0]
    return [each.model_ for each in fitted]


def check(name, size):
    for model in fit_on_ranks(name, size):
        assert golden._hash(golden._lasting(model.to_bytes())) == expected()[name]["model"]


@pytest.mark.parametrize("name", FAST)
def test_models_equal_the_golden_file(name):
    check(name, 3)


@pytest.mark.full
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SHARED)
def test_all_models_equal_the_golden_file(name, size):
    check(name, size)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_settings_raise(name):
    with pytest.raises(ValueError, match=UNSUPPORTED[name]):
        fit_on_ranks(name, 2)


def problem(rng, n, n_outputs, of_classes):
    X = rng.integers(-9, 9, (n, 4)) / 4.0
    X[rng.random(X.shape) < 0.1] = np.nan
    wide = max(2, n_outputs)
    scores = np.nan_to_num(X) @ np.sin(np.arange(4 * wide)).reshape(4, wide)
    scores += rng.normal(size=(n, wide))
    values = scores[:, 0] if n_outputs == 1 else scores[:, :n_outputs]
    return X, scores.argmax(axis=1) if of_classes else values


# Some objectives have quantiles as leaf values.
OBJECTIVES = [
    {},
    {"objective": "absolute_error"},
    {"objective": "quantile", "quantile_alpha": (0.1, 0.9), "calibrate_quantiles": False},
]
# Row sampling.
SAMPLED = [{}, {"subsample": 0.5}, {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.2}]


def draw_common(data, rng, n, size):
    """Draw parameters of all leaves, weights, and the rows of each rank."""
    parameters = {
        "grow_policy": data.draw(st.sampled_from(["lossguide", "depthwise"])),
        **data.draw(st.sampled_from(SAMPLED)),
        "colsample_bynode": data.draw(st.sampled_from([1.0, 0.6])),
        "min_child_samples": data.draw(st.integers(1, 10)),
        **{"n_estimators": 4, "max_leaves": 7, "n_jobs": 1, "random_state": n},
    }
    weight = data.draw(st.sampled_from([None, rng.integers(0, 3, n) / 2.0]), "weight")
    rank = rng.integers(0, size, n) if data.draw(st.booleans()) else np.sort(rng.integers(0, 2, n))
    return parameters, weight, [np.flatnonzero(rank == r) for r in range(size)]


def make_words(rng, n, n_words):
    """Return sparse counts and weights of words, a dense column, and scores of five outputs."""
    X = sp.random(n, n_words, density=0.04, format="csr", rng=rng)
    X.data = np.where(rng.random(X.nnz) < 0.5, 1.0, np.round(X.data, 1))
    X.data[rng.random(X.nnz) < 0.05] = np.nan
    X = sp.hstack([X, sp.csr_matrix(rng.normal(size=(n, 1)))], "csr")
    values = X.copy()
    values.data = np.nan_to_num(values.data)
    return X, values @ rng.normal(size=(n_words + 1, 5)) + 0.1 * rng.normal(size=(n, 5))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_partition_of_sparse_features_does_not_change_the_model(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    size, n = data.draw(st.integers(2, 4), "size"), data.draw(st.integers(30, 300), "n")
    X, scores = make_words(rng, n, data.draw(st.integers(1, 150), "words"))
    chosen, weight, rows = draw_common(data, rng, n, size)
    kind, y = data.draw(
        st.sampled_from(
            [
                (PolyleafRegressor, scores[:, 0]),
                (PolyleafRegressor, scores),
                (PolyleafClassifier, scores.argmax(axis=1)),
                (PolyleafClassifier, (scores > 1).astype(int)),
                (PolyleafClassifier, sp.csr_matrix(scores > 1)),
            ]
        )
    )
    if sp.issparse(y):
        chosen |= {"leaf": "sparse", "leaf_k": 3, "objective": "squared_hinge"}
        chosen["split_search"] = data.draw(st.sampled_from(["count_sketch", "exact"]))
    else:
        more = [{}, {"hessian": "full"}, {"boosting_step": "layer"}, {"leaf": "linear"}]
        more += [{"leaf": "sparse", "leaf_k": 2}] if np.ndim(y) == 2 else []
        chosen |= data.draw(st.sampled_from(more))
    if chosen.get("boosting_step") or chosen.get("sampling_method"):
        chosen["grow_policy"] = "depthwise"
    assert_ranks_equal_one_machine(kind(**chosen), X, y, size, rows, sample_weight=weight)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_partition_of_rows_does_not_change_the_model(data):
    seed = data.draw(st.integers(0, 2**32 - 1), "seed")
    size, n = data.draw(st.integers(2, 5), "size"), data.draw(st.integers(8, 120), "n")
    of_classes = data.draw(st.booleans(), "of_classes")
    rng = np.random.default_rng(seed)
    X, y = problem(rng, n, data.draw(st.sampled_from([1, 3, 17]), "n_outputs"), of_classes)
    chosen, weight, rows = draw_common(data, rng, n, size)
    chosen["hessian"] = data.draw(st.sampled_from(["auto", "none", "shared"]))
    sketch = data.draw(st.sampled_from([None, *SKETCHES]), "sketch")
    if sketch is not None:
        chosen |= {"sketch": sketch, "sketch_dim": 2}
    if data.draw(st.booleans(), "linear"):
        fits = st.sampled_from(["half_additive", "full", "post"])
        chosen |= {"leaf": "linear", "linear_fit": data.draw(fits)}
    elif not of_classes:
        chosen |= data.draw(st.sampled_from(OBJECTIVES))
    estimator = (PolyleafClassifier if of_classes else PolyleafRegressor)(**chosen)
    if (weight is not None and not weight.any()) or (of_classes and len(np.unique(y)) < 2):
        return
    try:
        clone(estimator).fit(X, y, weight)
    except ValueError:
        return  # for example classes of zero weight
    assert_ranks_equal_one_machine(estimator, X, y, size, rows, sample_weight=weight)


def make_labels(rng, X, n_labels):
    """Return labels that depend on the features; some never occur, and some rows have none."""
    waves = np.sin(np.nan_to_num(X) @ rng.normal(size=(X.shape[1], n_labels)))
    chance = 0.5 / (1 + np.exp(-3 * waves))
    chance[:, rng.random(n_labels) < 0.2] = 0
    return sp.csr_matrix((rng.random(chance.shape) < chance).astype(np.float32))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_partition_of_sparse_targets_does_not_change_the_model(data):
    """Check sums over few of very many labels."""
    seed = data.draw(st.integers(0, 2**32 - 1), "seed")
    size, n = data.draw(st.integers(2, 5), "size"), data.draw(st.integers(8, 120), "n")
    rng = np.random.default_rng(seed)
    X, _ = problem(rng, n, 1, False)
    Y = make_labels(rng, X, data.draw(st.sampled_from([2, 40]), "n_labels"))
    kind = data.draw(st.sampled_from([PolyleafClassifier, PolyleafRegressor]), "kind")
    chosen, weight, rows = draw_common(data, rng, n, size)
    if Y.nnz == 0 or (weight is not None and not weight.any()):
        return
    chosen |= {
        "leaf": "sparse",
        "leaf_k": data.draw(st.sampled_from([1, 4])),
        "objective": "squared_hinge" if kind is PolyleafClassifier else "squared_error",
        "split_search": data.draw(st.sampled_from(["count_sketch", "exact"])),
    }
    assert_ranks_equal_one_machine(kind(**chosen), X, Y, size, rows, sample_weight=weight)


LABELS = {"leaf": "sparse", "leaf_k": 3, "objective": "squared_hinge", "n_jobs": 1}


@pytest.mark.parametrize("split_search", ["count_sketch", "exact"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sampled", SAMPLED)
def test_ranks_without_rows_have_weights(split_search, weighted, sampled):
    rng = np.random.default_rng(0)
    X, _ = problem(rng, 60, 1, False)
    Y, weight = make_labels(rng, X, 20), rng.integers(0, 3, 60) / 2.0 if weighted else None
    chosen = {**LABELS, **sampled, "split_search": split_search, "random_state": 0}
    estimator = PolyleafClassifier(n_estimators=3, min_child_samples=2, **chosen)
    rows = [np.arange(0), np.arange(40), np.arange(0), np.arange(40, 60)]
    assert_ranks_equal_one_machine(estimator, X, Y, 4, rows, sample_weight=weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_scored_rows_equal_those_of_one_machine(weighted):
    rng = np.random.default_rng(0)
    X, _ = problem(rng, 12_000, 1, False)
    Y, weight = make_labels(rng, X, 30), rng.integers(0, 4, 12_000) / 2.0 if weighted else None
    estimator = PolyleafClassifier(n_estimators=2, max_leaves=4, random_state=0, **LABELS)
    for size in (2, 3):
        assert_ranks_equal_one_machine(estimator, X, Y, size, sample_weight=weight)


@pytest.mark.parametrize("leaf", ["constant", "linear", "sparse"])
def test_early_stopping_equals_one_machine(leaf):
    rng = np.random.default_rng(0)
    X, y = problem(rng, 400, 2, False)
    parameters = {"n_estimators": 60, "early_stopping_rounds": 3, "random_state": 0, "n_jobs": 1}
    if leaf == "sparse":
        y = make_labels(rng, X, 30)
        estimator = PolyleafClassifier(
            **parameters | LABELS, learning_rate=0.9, min_child_samples=5
        )
    else:
        estimator = PolyleafRegressor(**parameters, learning_rate=0.5, leaf=leaf)
    train, held = slice(0, 250), slice(250, None)
    alone = clone(estimator).fit(X[train], y[train], X_val=X[held], y_val=y[held])
    watched = {"validation": (X[held], y[held])}
    first, *others = fit_on_threads(estimator, X[train], y[train], 3, eval_set=watched)
    assert first.save_model() == alone.save_model() and first.evals_result_ == alone.evals_result_
    assert 0 < alone.best_iteration_ < alone.n_iter_ - 1 < 59
    assert all(other.n_iter_ == alone.n_iter_ for other in others)


@pytest.mark.parametrize("leaf", ["constant", "linear"])
def test_ranks_without_weight_or_sampled_rows(leaf):
    X, y = problem(np.random.default_rng(0), 8, 1, False)
    weight, rows = np.array([1.0, 0, 1, 1, 1, 0, 1, 1]), [[3, 6], [0, 2, 4, 7], [1, 5]]
    parameters = {"n_estimators": 4, "min_child_samples": 1, "subsample": 0.5, "random_state": 0}
    estimator = PolyleafRegressor(**parameters, leaf=leaf, n_jobs=1)
    rows = [np.array(each) for each in rows]
    assert_ranks_equal_one_machine(estimator, X, y, 3, rows, sample_weight=weight)


def make_offset_problem(rng, n, objective):
    """Return rows, targets and offsets; classes have one offset each."""
    X, Y = problem(rng, n, 3, objective == "softmax")
    known = rng.integers(-4, 4, (n, 3)) / 4.0
    y = rng.poisson(np.exp(known / 2)).astype(float) if objective == "poisson" else Y
    return X, y, known


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        ("squared_error", {"normalize_targets": True}),
        ("poisson", {}),
        ("poisson", {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3}),
        ("softmax", {"subsample": 0.5}),
    ],
)
def test_offsets_equal_one_machine(objective, parameters, size):
    rng = np.random.default_rng(0)
    X, y, known = make_offset_problem(rng, 150, objective)
    X_val, y_val, known_val = make_offset_problem(rng, 60, objective)
    kind = PolyleafClassifier if objective == "softmax" else PolyleafRegressor
    estimator = kind(
        objective=objective, n_estimators=4, max_leaves=6, random_state=0, n_jobs=1, **parameters
    )
    alone = clone(estimator)
    alone.fit(X, y, offset=known, X_val=X_val, y_val=y_val, offset_val=known_val)
    held = {"validation": (X_val, y_val, known_val)}
    first, *others = fit_on_threads(estimator, X, y, size, offset=known, eval_set=held)
    assert first.save_model() == alone.save_model() and first.evals_result_ == alone.evals_result_
    unwatched = clone(estimator).fit(X, y, offset=known).save_model()
    assert all(other.save_model() == unwatched for other in others)
    assert unwatched != clone(estimator).fit(X, y).save_model()


NO_TREES = {"min_split_gain": 1e9, "n_estimators": 20, "subsample": 0.5}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"multi_strategy": "one_output_per_tree", "boosting_step": "tree"},
        {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3},
        {"leaf": "linear"},
        {"sampling_method": "goss"},
        {"base_score": 0.0, **NO_TREES},
        LABELS,
        LABELS | NO_TREES,
    ],
)
def test_rounds_are_replayed(parameters):
    """Rounds of an interrupted attempt are reused: model, log and last round are the same."""
    rng = np.random.default_rng(0)
    (X, y), held = problem(rng, 200, 2, False), problem(rng, 60, 2, False)
    kind, chosen = PolyleafRegressor, {"n_estimators": 8, "early_stopping_rounds": 15, "n_jobs": 1}
    if "leaf_k" in parameters:
        kind, y, held = PolyleafClassifier, make_labels(rng, X, 30), None
        chosen["early_stopping_rounds"] = None
    chosen |= {"learning_rate": 0.5, "max_leaves": 6, "random_state": 0, **parameters}
    estimator, watched = kind(**chosen), held and {"validation": held}
    whole = fit_on_threads(estimator, X, y, 2, eval_set=watched)[0]
    for n_rounds in (1, 5, whole.n_iter_):
        known = whole.model_.copy()
        known.truncate(n_rounds)
        again = fit_on_threads(estimator, X, y, 3, eval_set=watched, resume_from=known)[0]
        assert again.save_model() == whole.save_model()
        assert again.evals_result_ == whole.evals_result_


def test_learning_rates_of_callbacks_apply_to_all_ranks():
    from polyleaf.callbacks import LearningRateScheduler

    X, y = problem(np.random.default_rng(0), 100, 1, False)
    schedule = LearningRateScheduler([0.5, 0.25, 0.125])
    estimator = PolyleafRegressor(n_estimators=4, callbacks=[schedule], random_state=0, n_jobs=1)
    alone = clone(estimator).fit(X, y)
    for each in fit_on_threads(estimator, X, y, 2):
        assert golden._lasting(each.save_model()) == golden._lasting(alone.save_model())


def test_failed_rank_ends_all_ranks():
    rng = np.random.default_rng(0)
    X, y = problem(rng, 100, 1, False)

    class Fails(Exception):
        pass

    class Fail:
        def after_iteration(self, model, epoch, evals_log):
            raise Fails

        before_iteration = before_training = after_training = lambda self, *_: False

    with pytest.raises(Fails):
        fit_on_threads(PolyleafRegressor(n_estimators=5, callbacks=[Fail()], n_jobs=1), X, y, 3)


def test_ranks_with_different_trees_raise():
    from polyleaf.training.distributed import sync_ranks

    X, y = problem(np.random.default_rng(0), 100, 1, False)
    models = [
        PolyleafRegressor(n_estimators=2, max_leaves=k, n_jobs=1).fit(X, y).model_
        for k in (3, 3, 4)
    ]
    found = ThreadCommunicator.run(2, lambda c: sync_ranks(c, models[c.rank], c.rank == 0))
    assert found == [True, True]
    with pytest.raises((RuntimeError, WorkerLostError), match="another tree"):
        ThreadCommunicator.run(3, lambda comm: sync_ranks(comm, models[comm.rank], False))


N_PIECES = 60


def make_pieces():
    """Return targets by name: in each, something is in a few rows only."""
    rng = np.random.default_rng(3)
    Y = rng.normal(size=(N_PIECES, 3)) * [1, 1000, 0.01] + [0, 5, 1e6]
    missing, labels = Y.copy(), (Y[:, :2] > 0).astype(float)
    missing[7, 1] = labels[9, 0] = np.nan
    y = np.abs(Y[:, 0]) + 0.1
    classes = np.array(["low", "high"])[(Y[:, 0] > 0).astype(int)].astype(object)
    classes[[4, 5]] = "exceptional"
    return {
        "spreads": Y,
        "missing": missing,
        "positive": y,
        "counts": np.floor(3 * y),
        "classes": classes,
        "labels": labels,
        "shares": rng.dirichlet([1.0, 2.0, 0.5], N_PIECES),
    }


@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize(
    ("kind", "target", "parameters"),
    [
        (PolyleafRegressor, "spreads", {"normalize_targets": "auto"}),
        (PolyleafRegressor, "spreads", {"normalize_targets": True, "target_weight": [1, 2, 3]}),
        (PolyleafRegressor, "missing", {"missing_targets": "ignore"}),
        (PolyleafRegressor, "spreads", {"objective": "huber"}),
        (PolyleafRegressor, "spreads", {"objective": "expectile"}),
        (
            PolyleafRegressor,
            "spreads",
            {"objective": "quantile", "quantile_alpha": [0.1, 0.9], "calibrate_quantiles": False},
        ),
        *[
            (PolyleafRegressor, "positive", {"objective": objective})
            for objective in ("normal", "lognormal", "student_t", "gamma_distribution", "gamma")
        ],
        (PolyleafRegressor, "counts", {"objective": "negative_binomial"}),
        (PolyleafClassifier, "classes", {"class_weight": "balanced"}),
        (PolyleafClassifier, "classes", {"objective": "logistic"}),
        (PolyleafClassifier, "labels", {"missing_targets": "ignore"}),
        (
            PolyleafClassifier,
            "labels",
            {"missing_targets": "ignore", "scale_pos_weight": "balanced"},
        ),
        (PolyleafClassifier, "shares", {}),
    ],
)
def test_fits_are_prepared_in_pieces(kind, target, parameters, has_weight, monkeypatch):
    monkeypatch.setattr(target_scaling, "_BLOCK_CELLS", 2 * N_PIECES // 3)  # of some columns
    X, y = np.random.default_rng(1).normal(size=(N_PIECES, 2)), make_pieces()[target]
    weight = np.arange(N_PIECES) % 5 / 3 if has_weight else None
    estimator = kind(n_estimators=1, max_depth=2, max_leaves=None, n_jobs=1, **parameters)
    for size in (2, 3):
        assert_ranks_equal_one_machine(estimator, X, y, size, sample_weight=weight)


@pytest.mark.parametrize("parameters", [{"objective": "poisson"}, {"objective": "normal"}])
def test_offsets_are_prepared_in_pieces(parameters):
    X, y = np.random.default_rng(1).normal(size=(N_PIECES, 2)), make_pieces()["counts"]
    offset = np.random.default_rng(2).normal(size=N_PIECES)
    estimator = PolyleafRegressor(n_estimators=1, n_jobs=1, **parameters)
    assert_ranks_equal_one_machine(estimator, X, y, 3, offset=offset)


def test_pieces_of_other_dtypes_and_kinds():
    """Numbers of several dtypes are those of one array; text beside numbers is refused."""

    def read(parts):
        def work(ranks):
            rows, blocks = RowData(parts[ranks.rank]), RowBlocks([2, 2], [ranks.rank])
            return read_shard(estimator, rows, None, (), ranks, blocks)[1].target

        return ThreadCommunicator.run(2, work, timeout=60)

    estimator = PolyleafRegressor(n_jobs=1)
    both = read([np.array([1, 2], np.float32), np.array([3, 4])])
    assert {part.values.dtype for part in both} == {np.dtype(np.float64)}
    with pytest.raises(ValueError, match="y has other columns in some partitions"):
        read([np.ones(2), np.ones((2, 2))])
    estimator = PolyleafClassifier(n_jobs=1)
    assert read([np.array(["a", "b"]), np.array(["b", "ccc"])])[1].encoding.classes[2] == "ccc"
    with pytest.raises(ValueError, match="y holds text in some batches and numbers in others"):
        read([np.array(["a", "b"]), np.array([1, 2])])


def test_base_scores_of_some_rows_are_refused():
    class Local(SquaredError):
        def best_constant(self, bound, n_threads):
            return super().best_constant(bound, 1)

    X = y = np.arange(20.0)
    with pytest.raises(ValueError, match="base score of the rows of one worker"):
        fit_on_threads(PolyleafRegressor(objective=Local(), n_jobs=1), X[:, None], y, 2)


class Counting(ThreadCommunicator):
    """Count exchanges, and the bytes of histograms."""

    def __init__(self, communicator):
        vars(self).update(vars(communicator))
        self.asked, self.shared = 0, []

    def alltoall(self, blocks):
        self.asked += 1
        if isinstance(blocks[0], np.ndarray):
            self.shared.append([len(block) for block in blocks])
        return super().alltoall(blocks)


def counted_fit(estimator, X, y, **arguments):
    """Fit two rounds on two ranks; return the models and the counts of each rank."""
    counted = []

    def wrap(communicator):
        counted.append(Counting(communicator))
        return counted[-1]

    estimator.set_params(n_estimators=2, max_leaves=None, n_jobs=1)
    fitted = fit_on_threads(estimator, X, y, 2, wrap=wrap, **arguments)
    for each in counted:
        each.asked -= 1  # the rows in each bin are summed once
    return fitted, counted


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_messages_and_bytes_of_a_tree_are_as_predicted(depth):
    """Check a full tree with 16 features of 255 bins and 16 outputs: one histogram of the root and
    one per pair of siblings."""
    X = np.random.default_rng(0).permuted(np.repeat(np.arange(2048.0)[:, None], 16, axis=1), axis=0)
    Y = np.sin(X / 100)
    fitted, counted = counted_fit(PolyleafRegressor(max_depth=depth, random_state=0), X, Y)
    assert fitted[0].model_.forest.tree(1).n_leaves == 2**depth
    bins = 8 * 255 * 17  # of eight features: sums and counts
    for each in counted:
        assert each.asked == 2 * (9 + 2 * depth)
        for n, sizes in zip(2 * (1, 1, 2, 4)[:depth], each.shared, strict=True):
            assert max(sizes) <= n * 4 * (8 * 256 // 32 + bins)
        for sizes in each.shared[::depth]:  # of roots; with fewer rows, more bins are empty
            assert min(sizes) > 0.9 * 4 * bins


def test_only_bins_that_have_rows_are_sent():
    """256 bins are reserved for a feature of two values beside one of many."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.permutation(512), rng.integers(0, 2, (512, 15))]
    Y = np.sin(X[:, :1] / 9 + np.arange(16))
    _, counted = counted_fit(PolyleafRegressor(max_depth=1, random_state=0), X, Y)
    for each in counted:
        assert sum(map(sum, each.shared)) < 2 * 4 * (2 * 64 + 17 * (255 + 15 * 2))


def test_sorted_categories_are_exchanged_once_per_tree():
    X = np.random.default_rng(0).integers(0, 9, (300, 3)).astype(np.float64)
    asked = []
    for categories in (None, [1]):
        data = Dataset(X, categorical_features=categories)
        y = np.sin(3 * X[:, 1]) + X[:, 0]
        _, counted = counted_fit(PolyleafRegressor(max_depth=2), data, y)
        asked.append(counted[0].asked)
    assert asked == [2 * (9 + 2 * 2), 2 * (9 + 2 * 2 + 1)]


@pytest.mark.parametrize(
    ("linear_fit", "a_tree", "a_level"),
    [("half_additive", 11, 4), ("full", 11, 4), ("post", 14, 2)],
)
def test_messages_of_linear_leaves_are_as_predicted(linear_fit, a_tree, a_level):
    X = np.random.default_rng(0).normal(size=(300, 5))
    asked = {}
    for depth in (1, 3):
        estimator = PolyleafRegressor(max_depth=depth, leaf="linear", linear_fit=linear_fit)
        _, counted = counted_fit(estimator, X, X[:, 0] * X[:, 1])
        asked[depth] = counted[0].asked
    of_table = 4 * X.shape[1]  # statistics of regressors, once
    assert asked == {depth: of_table + 2 * (a_tree + a_level * depth) for depth in (1, 3)}


@pytest.mark.parametrize(
    ("split_search", "weighted", "a_tree", "a_level"),
    [
        ("count_sketch", False, 12, 5),
        ("count_sketch", True, 17, 6),
        ("exact", False, 9, 3),
        ("exact", True, 11, 4),
    ],
)
def test_messages_of_labels_are_as_predicted(split_search, weighted, a_tree, a_level):
    """The exact search has an exchange for each of the 2^depth - 1 inner nodes."""
    rng = np.random.default_rng(0)
    X = rng.permuted(np.repeat(np.arange(512.0)[:, None], 5, axis=1), axis=0)
    Y = make_labels(rng, X / 100, 30)
    weight = rng.integers(1, 3, 512) / 2.0 if weighted else None
    asked = {}
    for depth in (1, 3):
        parameters = {**LABELS, "split_search": split_search, "min_child_samples": 1}
        estimator = PolyleafClassifier(max_depth=depth, **parameters)
        fitted, counted = counted_fit(estimator, X, Y, sample_weight=weight)
        assert fitted[0].model_.forest.tree(1).n_leaves == 2**depth
        asked[depth] = counted[0].asked
    levels = {depth: 2**depth - 1 if split_search == "exact" else depth for depth in (1, 3)}
    # One more exchange measures the weights before training.
    assert asked == {depth: 2 * (a_tree + a_level * levels[depth]) + weighted for depth in (1, 3)}


@pytest.mark.parametrize("leaf", ["constant", "linear", "sparse"])
def test_heavy_rows_equal_one_machine(leaf):
    """Check limits and rounding of weights if most rows are on other ranks."""
    rng = np.random.default_rng(6)
    X, weight = rng.normal(size=(240, 4)), np.exp(6 * rng.normal(size=240))
    weight[rng.random(240) < 0.1] = 0.0
    Y = np.abs(np.round(X[:, :2] * 3))
    cases = [({"sample_weight": weight}, {})]
    if leaf == "sparse":
        Y = sp.csr_matrix(Y)
        cases[0][1].update(leaf_k=1, split_search="count_sketch")
    elif leaf == "constant":
        cases.append(({"offset": np.log(weight + 1e-9)[:, None] + np.zeros((1, 2))}, {}))
        cases[1][1]["objective"] = "poisson"
    for arguments, parameters in cases:
        estimator = PolyleafRegressor(n_estimators=4, n_jobs=1, leaf=leaf, **parameters)
        assert_ranks_equal_one_machine(estimator, X, Y, 3, **arguments)


@pytest.mark.parametrize(("weighted", "a_tree"), [(False, 10), (True, 13)])
def test_messages_of_quantiles_are_as_predicted(weighted, a_tree):
    X = np.random.default_rng(0).normal(size=(300, 5))
    weight = np.arange(1.0, 301.0) if weighted else None
    estimator = PolyleafRegressor(max_depth=3, objective="absolute_error")
    _, counted = counted_fit(estimator, X, X[:, 0] * X[:, 1], sample_weight=weight)
    # One more exchange measures the weights before training.
    assert counted[0].asked == 2 * (a_tree + 2 * 3) + weighted


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 400), st.data())
def test_goss_uses_gradients_of_all_ranks(n, data):
    """Some gradients are equal, some are 0, and the last one kept is tied with others."""
    size, rng = data.draw(st.integers(1, 4)), np.random.default_rng(n)
    rank, few = rng.integers(0, size, n), data.draw(st.booleans())
    g = rng.integers(0, 3 if few else 10**6, (n, 2)).astype(np.float32) - 1
    rates = {"top_rate": data.draw(st.floats(0.01, 0.6)), "other_rate": 0.2}
    chosen = SimpleNamespace(sampling_method="goss", seed=3, **rates)
    rows, multiplier = sample_rows(chosen, g, 1)
    if rows is None:  # all of few rows are taken
        return

    def work(communicator):
        own = np.flatnonzero(rank == communicator.rank)
        found, own_multiplier = sample_rows(
            chosen, g[own], 1, row_ids=GlobalRowIds(own, n, communicator)
        )
        return own[found], own, own_multiplier

    found = ThreadCommunicator.run(size, work)
    np.testing.assert_array_equal(np.sort(np.concatenate([each[0] for each in found])), rows)
    for _, own, own_multiplier in found:
        np.testing.assert_array_equal(own_multiplier, multiplier[own])
    norms = np.linalg.norm(g, axis=1)
    kept = rows[multiplier[rows] == 1]
    assert len(kept) >= 1 and np.sort(norms[kept])[0] >= np.sort(np.delete(norms, kept))[-1:].max(
        initial=0
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.data())
def test_quantiles_use_the_rows_of_all_ranks(n, data):
    """Values have ties and zeros of both signs; some leaves have no rows or no weight."""
    rng, size = np.random.default_rng(n), data.draw(st.integers(2, 4))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    span = data.draw(st.sampled_from([2, 10**6]))
    values = (rng.integers(-span, span, (n, 3)) / 7).astype(dtype) * rng.choice(
        [0, -1, 1e-30, 1e20], (n, 3)
    ).astype(dtype)
    weight = data.draw(
        st.sampled_from([None, rng.integers(0, 3, (n, 1)), rng.random((n, 3)) * 1e-4])
    )
    weight = None if weight is None else weight.astype(np.float32)
    leaf, level = rng.integers(0, 6, n).astype(np.int32), np.array([0.01, 0.5, 0.93])
    alone = _core.fit_quantile_leaves(values, weight, leaf, 7, None, level, 1)
    rank = rng.integers(0, size, n)

    def work(communicator):
        own = rank == communicator.rank
        about = None if weight is None else weight[own], leaf[own], 7, None, level
        return _core.fit_quantile_leaves(values[own], *about, Context(2, communicator))

    for found in ThreadCommunicator.run(size, work):
        assert found.tobytes() == alone.tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_sums_of_squares_use_the_rows_of_all_ranks(size):
    rng = np.random.default_rng(0)
    g = (rng.normal(size=(9000, 4)) * [1, 1e-20, 0, 1e15]).astype(np.float32)
    alone, rank = _core.column_energy(g, 1), rng.integers(0, size, 9000)

    def work(communicator):
        return _core.column_energy(g[rank == communicator.rank], Context(1, communicator))

    for found in ThreadCommunicator.run(size, work):
        np.testing.assert_array_equal(found, alone)
    g[17, 1] = np.inf
    for found in ThreadCommunicator.run(size, work):
        assert np.isnan(found[1]) and (found[[0, 2, 3]] == alone[[0, 2, 3]]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400), st.data())
def test_samples_depend_on_global_row_ids(n, data):
    count, size = data.draw(st.integers(1, n)), data.draw(st.integers(1, 4))
    rank = np.random.default_rng(n).integers(0, size, n)
    expected = draw(n, count, 3, 1, ROWS)

    def work(communicator):
        own = np.flatnonzero(rank == communicator.rank)
        return own[draw_ids(own, count, 3, 1, ROWS, communicator)]

    np.testing.assert_array_equal(
        np.sort(np.concatenate(ThreadCommunicator.run(size, work))), np.flatnonzero(expected)
    )
