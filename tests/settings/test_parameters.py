"""Parameters are declared once; defaults, checks and documentation follow from the declaration."""

import ast
import inspect
import pickle
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

import polyleaf
from polyleaf import PolyleafClassifier, PolyleafRanker, PolyleafRegressor, _core
from polyleaf.objectives.base import is_built_in
from polyleaf.objectives.registry import registered_objectives
from polyleaf.settings import param_spec, parameters, train_config
from polyleaf.settings.param_spec import get_param_specs, make_constraints
from polyleaf.settings.parameters import ClassifierParameters, RankerParameters, RegressorParameters
from polyleaf.sketching.projections import Projector
from polyleaf.sketching.sketches import DEFAULT_DIM
from polyleaf.training import auto_rounds
from polyleaf.training.tree_builder import LABEL_SKETCH_DIM, MAX_DIAGONAL_OUTPUTS

ESTIMATORS = [
    (PolyleafRegressor, RegressorParameters),
    (PolyleafClassifier, ClassifierParameters),
    (PolyleafRanker, RankerParameters),
]
SOURCE = Path(polyleaf.__file__).parent
REFERENCE = Path(__file__).parents[1] / "reference"
EVERY = {p.name: p for _, declared in ESTIMATORS for p in get_param_specs(declared)}
PARTS = (
    train_config.BoostingConfig,
    train_config.GrowthConfig,
    train_config.RegularisationConfig,
    train_config.HessianConfig,
    train_config.SamplingConfig,
    train_config.TopkLeaf,
    train_config.LinearLeaf,
)
RESOLVED = {"seed", "slope_lambda"}
OF_OBJECTIVES = {
    name for cls in registered_objectives().values() if is_built_in(cls) for name in cls.parameters
} & set(EVERY)
PREPARATION = OF_OBJECTIVES | {
    "base_score", "calibrate_quantiles", "callbacks", "categorical_features", "class_weight",
    "device", "early_stopping_rounds", "eval_metric", "init", "leaf", "max_bins", "missing_targets",
    "n_jobs", "normalize_targets", "objective", "on_interrupt", "position_lambda", "projection",
    "projection_dim", "quality", "random_state", "target_weight", "tfidf", "threshold",
    "validation_fraction", "validation_order", "verbose", "warm_start",
}  # fmt: skip
"""Parameters of objectives, estimators and data preparation, which no part of TrainConfig has,
and one that is no part."""

# Equal names with another meaning: the rows that thresholds are chosen from, the
# seed of that sample, Hessian kinds of single losses, the value of a preset, and values that
# disable a part; gains of metrics without an objective, and the normalisation of two losses.
OTHER_MEANING = {
    ("binning.py", "subsample"), ("binning.py", "random_state"), ("custom.py", "hessian"),
    ("elementwise.py", "hessian"), ("elementwise.py", "scale_pos_weight"), ("presets.py", "leaf_k"),
    ("leaf_fitters.py", "learning_rate"), ("leaf_fitters.py", "block_size"),
    ("queries.py", "gains"), ("ranking.py", "lambda_normalization"),
}  # fmt: skip


# --- one declaration ------------------------------------------------------------------------------


def literal_defaults(path):
    """Yield (file, name, value) of each literal default of a parameter in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        defaults = []
        if isinstance(node, ast.FunctionDef):
            positional = [*node.args.posonlyargs, *node.args.args][::-1]
            defaults += zip((a.arg for a in positional), node.args.defaults[::-1], strict=False)
            names = (a.arg for a in node.args.kwonlyargs)
            defaults += zip(names, node.args.kw_defaults, strict=True)
        elif isinstance(node, ast.ClassDef):
            defaults += ((s.target.id, s.value) for s in node.body if isinstance(s, ast.AnnAssign))
        for name, value in defaults:
            if name in EVERY and isinstance(value, ast.Constant) and value.value is not None:
                yield path.name, name, value.value


def declared_literals():
    """Yield the parameters whose declaration has a literal default."""
    for node in ast.walk(ast.parse((SOURCE / "settings" / "parameters.py").read_text("utf-8"))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            default = next(k.value for k in node.value.keywords if k.arg == "default")
            if isinstance(default, ast.Constant):
                yield node.target.id


def test_defaults_are_declared_once():
    declared = set(declared_literals())
    literals = [default for path in SOURCE.rglob("*.py") for default in literal_defaults(path)]
    others = [(file, name) for file, name, _ in literals if (file, name) not in OTHER_MEANING]
    assert [(file, name) for file, name in others if name in declared] == []
    assert len(others) == len({name for _, name in others})  # the others have one place, too
    assert {"leaf_k", "objective"} <= declared and "huber_delta" not in declared


def test_reference_does_not_repeat_defaults():
    """Defaults of the specification are values that disable a part."""
    found = [default for path in REFERENCE.glob("*.py") for default in literal_defaults(path)]
    assert [default for default in found if default[2] == EVERY[default[1]].default] == []
    assert all(value in (0, 1) for _, _, value in found) and len(found) > 3


def test_repeated_defaults_are_found(tmp_path):
    path = tmp_path / "second.py"
    function = "def f(a, reg_lambda=1.0, *, leaf='linear', max_depth=None): ..."
    path.write_text(f"{function}\nclass C:\n    top_rate: float = 2\n")
    names = [name for _, name, _ in literal_defaults(path)]
    assert names == ["reg_lambda", "leaf", "top_rate"]


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("SplitConfig", "reg_lambda"), ("GrowConfig", "max_depth"), ("LeafConfig", "reg_lambda")],
)
def test_core_bindings_have_no_defaults(name, parameter):
    signature = getattr(_core, name).__init__.__doc__.splitlines()[0]
    assert parameter in signature
    assert " = " not in signature  # an array's type has "dtype=float32"


# --- what follows from a declaration --------------------------------------------------------------


@pytest.mark.parametrize(("estimator", "declared"), ESTIMATORS)
def test_constructor_follows_from_declarations(estimator, declared):
    signature = inspect.signature(estimator)
    defaults = {p.name: p.default for p in get_param_specs(declared)}
    assert defaults == {n: p.default for n, p in signature.parameters.items()}
    assert estimator().get_params() == defaults
    positional = [n for n, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    assert positional == ["objective"]
    with pytest.raises(TypeError, match="leafs"):
        estimator(leafs=3)


@pytest.mark.parametrize(("estimator", "declared"), ESTIMATORS)
def test_defaults_are_valid_and_checks_follow_from_declarations(estimator, declared):
    BaseEstimator._validate_params(estimator())  # the estimator's own leaves defaults out
    names = set(estimator().get_params())
    assert set(make_constraints(declared)) == names == set(estimator._parameter_constraints)
    for name, value, words in (
        ("subsample", 0.0, r"float in the range \(0.0, 1.0\]"),
        ("max_bins", 256, r"int in the range \[2, 255\]"),
        ("early_stopping_rounds", 0, r"int in the range \[1, inf\) or None"),
        ("max_depth", 0, r"int in the range \[1, 2147483647\] or None"),
        ("learning_rate", 0, r"float in the range \(0.0, inf\)"),
        ("threshold_step", 1.0, r"float in the range \[0.0, 1.0\)"),
        ("linear_lambda", -1, r"float in the range \[0.0, inf\] or None"),
        ("leaf", "linen", "a str among"),
        ("sketch", "random", "implementing 'sketch', a callable or None|a str among"),
        ("tfidf", "yes", "bool"),
        ("n_jobs", 1.5, "an instance of 'int' or None"),
        ("rows_per_layer", 0.5, "array-like or None"),
    ):
        with pytest.raises(ValueError, match=words):
            estimator(**{name: value})._validate_params()
    estimator(linear_lambda=np.inf, max_leaves=np.int64(3), verbose=True)._validate_params()


@pytest.mark.parametrize(("estimator", "declared"), ESTIMATORS)
def test_docstring_has_the_common_parameters_first(estimator, declared):
    common, rest = estimator.__doc__.split("Other Parameters\n")
    specs = get_param_specs(declared)
    lines = [line.strip() for line in estimator.__doc__.split("Attributes\n")[0].splitlines()]
    documented = [line.split(" : ")[0] for line in lines if " : " in line and ", default=" in line]
    assert sorted(documented) == sorted(p.name for p in specs)
    assert documented[0] == "objective" and "reg_alpha" not in common.split("learning_rate")[0]
    assert 10 <= sum(p.common for p in specs) <= 17
    for p in specs:
        assert p.text and (f"\n{p.name} : {p.kind}, default=" in (common if p.common else rest))
        assert p.common or p.topic in lines
    assert "subsample : float in (0, 1], default=1.0" in common
    assert 'grow_policy : {"lossguide", "depthwise"}, default="lossguide"' in rest


def test_descriptions_of_None_are_correct():
    usual, counts = parameters.DEFAULTS, parameters.COUNT_DEFAULTS
    text = f"None: {usual['learning_rate']}; {counts['learning_rate']} for counts"
    assert text in EVERY["learning_rate"].text
    assert f"None: {usual['colsample_bynode']}; all for counts" in EVERY["colsample_bynode"].text
    assert counts["colsample_bynode"] == 1 and set(usual) == set(counts)
    spreads = parameters.DISTRIBUTION_DEFAULTS
    assert set(spreads) == set(usual) and spreads["learning_rate"] == counts["learning_rate"]
    assert spreads["colsample_bynode"] == usual["colsample_bynode"]
    assert all(EVERY[name].default is None for name in (*usual, "n_estimators"))
    rounds = " ".join(EVERY["n_estimators"].text.split())
    assert f"early stopping on {auto_rounds.HELD_OUT:.0%} of the rows" in rounds
    assert f"at most {auto_rounds.MAX_ROUNDS:.0f} / `learning_rate`" in rounds
    assert f"{auto_rounds.MAX_CELL_ROUNDS / 1e9:.0f} billion / (rows" in rounds
    assert f"not below {parameters.DEFAULT_N_ESTIMATORS}." in rounds
    assert auto_rounds.MAX_ROWS == 10**6 and "more than a million rows" in rounds
    assert f"None: {DEFAULT_DIM}, and {LABEL_SKETCH_DIM} for" in EVERY["sketch_dim"].text
    assert f"None: {Projector.dim}." in EVERY["projection_dim"].text
    assert train_config.DEFAULT_HISTOGRAM_MEMORY == 2**30
    assert "None: 1 GiB." in EVERY["histogram_memory"].text
    assert f"up to {MAX_DIAGONAL_OUTPUTS} outputs" in EVERY["hessian"].text
    rate = f"{usual['learning_rate']}; {counts['learning_rate']} for counts and distributions"
    assert EVERY["learning_rate"].none == rate
    assert EVERY["colsample_bynode"].none == f"{usual['colsample_bynode']}; 1 for counts"
    most = auto_rounds.max_rounds(usual["learning_rate"])
    assert (
        f"at most {most:,}; {parameters.DEFAULT_N_ESTIMATORS} above" in EVERY["n_estimators"].none
    )


def test_missing_source_affects_documentation_only(monkeypatch):
    def no_source(module):
        raise OSError

    before = get_param_specs(RegressorParameters)
    monkeypatch.setattr(param_spec.inspect, "getsource", no_source)
    for kept in ("_read_texts", "_get_param_specs"):
        monkeypatch.setattr(param_spec, kept, getattr(param_spec, kept).__wrapped__)
    assert get_param_specs(RegressorParameters) == tuple(p._replace(text="") for p in before)
    documented = param_spec.format_parameters(RegressorParameters)
    assert "max_depth : int in [1, inf) or None" in documented


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subsample", "0.8", 0.8),
        ("max_depth", "None", None),
        ("max_depth", "null", None),
        ("tfidf", "True", True),
        ("objective", "huber", "huber"),
        ("grow_policy", "depthwise", "depthwise"),
        ("quantile_alpha", "[0.1, 0.9]", [0.1, 0.9]),
        ("subsample", ".8", 0.8),
        ("quantile_alpha", "[.1, .9]", [0.1, 0.9]),
        ("monotone_constraints", "{'a': 1}", {"a": 1}),
        ("eval_metric", '["mae", "rmse"]', ["mae", "rmse"]),
        ("projection", "leml", "leml"),
    ],
)
def test_values_are_parsed_from_text(name, text, value):
    assert EVERY[name].read(text) == value


def test_text_for_a_number_raises():
    with pytest.raises(ValueError, match=r"subsample is float in \(0, 1\], not 'high'"):
        EVERY["subsample"].read("high")
    assert EVERY["init"].read("auto") == "auto"


def test_copies_and_representations():
    estimator = PolyleafRegressor("huber", max_depth=3, eval_metric=["mae"])
    shown = "PolyleafRegressor(eval_metric=['mae'], max_depth=3, objective='huber')"
    assert repr(estimator) == shown
    for other in (clone(estimator), pickle.loads(pickle.dumps(estimator))):
        assert other.get_params() == estimator.get_params() and other != estimator
    assert estimator.set_params(max_depth=4).max_depth == 4 and PolyleafRegressor.max_depth is None
    assert "max_depth" in estimator._repr_html_() and {estimator}
    assert vars(PolyleafRegressor()) == PolyleafRegressor().get_params()


# --- parts of TrainConfig -------------------------------------------------------------------------


def test_each_parameter_has_one_part_or_is_for_preparation():
    names = [field.name for part in PARTS for field in fields(part)]
    assert sorted([*(n for n in names if n not in RESOLVED), *PREPARATION]) == sorted(EVERY)


def make_config(**parameters):
    options = {"n_rounds": 7, "has_sparse_targets": False, "seed": 3, "n_threads": 2}
    return train_config.make_train_config(RegressorParameters(**parameters), **options)


def test_parts_are_frozen_and_have_the_given_values():
    given = {"reg_lambda": 2.0, "max_leaves": 9, "subsample": 0.5, "leaf": "linear"}
    config = make_config(**given)
    assert (config.regularisation.reg_lambda, config.growth.max_leaves) == (2.0, 9)
    assert config.sampling.subsample == 0.5
    assert (config.boosting.n_estimators, config.growth.seed, config.sampling.seed) == (7, 3, 3)
    assert config.workers.n_threads == 2 and config == make_config(**given)
    fixed = (config, "boosting"), (config.regularisation, "reg_lambda"), (config.leaf, "linear_fit")
    for part, name in fixed:
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, None)


def test_dependent_parameters_are_resolved():
    assert make_config(leaf="linear", reg_lambda=2.0).leaf.slope_lambda == 2.0
    assert make_config(leaf="linear", linear_lambda=5.0).leaf.slope_lambda == 5.0
    assert make_config(hessian="block").hessian.leaf_hessian == "block"
    assert make_config(hessian="block").hessian.leaf_block_size == 2
    assert make_config(leaf="linear", linear_fit="full").hessian.hessian == "shared"
    assert make_config().growth.histogram_memory == 2**30
    sparse = {"leaf": "sparse", "split_search": "auto"}
    assert (
        make_config(**sparse).leaf.split_search == "histogram"
        and not make_config(**sparse).has_sparse_targets
    )
    of_sparse = train_config.make_train_config(
        RegressorParameters(**sparse), n_rounds=1, has_sparse_targets=True, seed=0, n_threads=1
    )
    assert of_sparse.leaf.split_search == "count_sketch" and of_sparse.has_sparse_targets


@pytest.mark.parametrize(
    "kind",
    [
        PolyleafRegressor,
        PolyleafClassifier,
        polyleaf.PolyleafMultiTask,
        polyleaf.PolyleafRegressorCV,
    ],
)
def test_docstring_sections_are_not_indented(kind):
    """Inserted text has the indentation of the written text on all Python versions."""
    lines = kind.__doc__.splitlines()
    for section in ("Parameters", "Other Parameters", "Attributes", "Examples"):
        assert lines[lines.index(section) + 1] == "-" * len(section)
        assert not lines[lines.index(section) + 2].startswith(" ")
