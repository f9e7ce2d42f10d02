"""Export to Treelite, for its interpreter, its compiler to C and GPU inference."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.export.ir import ModelIR, TreeIR, build_ir, check_scores
from polyleaf.runtime.optional_packages import optional_package

if TYPE_CHECKING:
    from polyleaf.model import Model

_POSTPROCESSORS = {"logistic": "sigmoid", "softmax": "softmax", "exponential": "exponential"}


def to_treelite(model: Model, *, check: bool = True) -> Any:
    """Convert a model to a `treelite.Model`.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best iteration is exported up to it.
    check : bool
        Whether to compare the raw scores with the model's, on 64 rows of thresholds, categories and
        missing values.

    Returns
    -------
    treelite.Model
        Model for rows of :func:`polyleaf.export.to_numeric_matrix`. Its postprocessor is the link
        if that is logistic, softmax or exponential; otherwise predictions are raw scores.

    Raises
    ------
    ImportError
        If the package treelite is not installed.
    ValueError
        If the model projects its features, has linear leaves, or dense leaf vectors would fill the
        memory.
    RuntimeError
        If the exported model gives other scores.
    """
    with optional_package("to_treelite needs the package treelite", "treelite"):
        import treelite
        import treelite.gtil
        import treelite.model_builder
    ir = build_ir(model, "treelite")
    ir.check_constant_leaves("treelite")
    builder = _make_builder(treelite, ir)
    for tree in ir.trees:
        _add_tree(builder, ir, tree)
    exported = builder.commit()
    if check:
        predict = partial(treelite.gtil.predict, exported, nthread=1, pred_margin=True)
        check_scores(model, "Treelite", lambda _, matrix: predict(matrix))
    return exported


def _make_builder(treelite: ModuleType, ir: ModelIR) -> Any:
    parts, model = treelite.model_builder, ir.model
    n_outputs, n_trees, is_multiclass = model.n_outputs, len(ir.trees), ir.kind == "multiclass"
    is_scalar = ir.has_scalar_trees
    shape = (1, 1) if is_scalar else (1, n_outputs) if is_multiclass else (n_outputs, 1)
    outputs = [max(0, tree.output) for tree in ir.trees] if is_scalar else [-1] * n_trees
    zeros = [0] * n_trees
    metadata = parts.Metadata(
        num_feature=model.n_features,
        task_type={"regression": "kRegressor", "multiclass": "kMultiClf"}.get(
            ir.kind, "kBinaryClf"
        ),
        average_tree_output=False,
        num_target=1 if is_multiclass else n_outputs,
        num_class=[n_outputs] if is_multiclass else [1] * n_outputs,
        leaf_vector_shape=shape,
    )
    annotation = parts.TreeAnnotation(
        num_tree=n_trees,
        target_id=zeros if is_multiclass else outputs,
        class_id=outputs if is_multiclass else zeros,
    )
    name = _POSTPROCESSORS.get(ir.link or "", "identity")
    postprocessor = parts.PostProcessorFunc(name="identity" if ir.is_one_vs_rest else name)
    dtype = np.dtype(ir.dtype).name
    return parts.ModelBuilder(
        threshold_type=dtype,
        leaf_output_type=dtype,
        metadata=metadata,
        tree_annotation=annotation,
        postprocessor=postprocessor,
        base_scores=ir.base_score.tolist(),
    )


def _add_tree(builder: Any, ir: ModelIR, tree: TreeIR) -> None:
    values = ir.leaf_values(tree)
    builder.start_tree()
    for node, leaf in enumerate(tree.leaf.tolist()):
        builder.start_node(node)
        if leaf >= 0:
            value = values[leaf].tolist()
            builder.leaf(value[0] if len(value) == 1 else value)
        else:
            _add_split(builder, ir, tree, node)
        builder.end_node()
    builder.end_tree()


def _add_split(builder: Any, ir: ModelIR, tree: TreeIR, node: int) -> None:
    feature, missing_left = int(tree.feature[node]), bool(tree.missing_left[node])
    options = {
        "default_left": missing_left,
        "left_child_key": int(tree.left[node]),
        "right_child_key": int(tree.right[node]),
    }
    if node not in tree.codes_left:
        builder.numerical_test(feature, float(tree.threshold[node]), opname="<=", **options)
        return
    # Categories that are not listed go where missing values go.
    listed = tree.codes_left[node]
    if missing_left:
        listed = np.setdiff1d(np.arange(int(ir.model.mapper.n_bins_[feature])), listed)
    builder.categorical_test(
        feature, category_list=listed.tolist(), category_list_right_child=missing_left, **options
    )
