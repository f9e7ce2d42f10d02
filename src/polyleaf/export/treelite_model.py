"""A model as Treelite has it: for its interpreter, its compiler to C, and inference on GPUs that reads it.

Owns: the translation. Must not know: how models are made. docs/export.md says what goes and what does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyleaf.export.ir import ModelIR, TreeIR, build_ir

__all__ = ["to_treelite"]

_POSTPROCESSORS = {"logistic": "sigmoid", "softmax": "softmax", "exponential": "exponential"}


def to_treelite(model: Any) -> Any:
    """A model as a `treelite.Model`.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best round is written up to it, as it predicts.

    Returns
    -------
    treelite.Model
        It reads rows as :func:`polyleaf.export.to_numeric_matrix` makes them. Its postprocessor is the link where
        Treelite has it: logistic of each output, softmax, exponential; otherwise predictions are raw scores.

    Raises
    ------
    ImportError
        Without the package treelite.
    ValueError
        When the model projects its features, has linear leaves, or leaves of so many outputs that dense
        vectors of them would fill the memory.
    """
    treelite = _treelite()
    source = build_ir(model)
    source.check_constant_leaves("Treelite", "to_onnx or to_c")
    builder = _builder(treelite, source)
    for tree in source.trees:
        _add(builder, source, tree)
    return builder.commit()


def _treelite() -> Any:
    try:
        import treelite
        import treelite.model_builder
    except ImportError as error:
        raise ImportError(
            'to_treelite needs the package treelite: pip install "polyleaf[treelite]".'
        ) from error
    return treelite


def _builder(treelite: Any, source: ModelIR) -> Any:
    parts, model = treelite.model_builder, source.model
    n_outputs, n_trees, classes = model.n_outputs, len(source.trees), source.kind == "multiclass"
    scalar = source.has_scalar_trees
    shape = (1, 1) if scalar else (1, n_outputs) if classes else (n_outputs, 1)
    outputs = [max(0, tree.output) for tree in source.trees] if scalar else [-1] * n_trees
    zeros = [0] * n_trees
    metadata = parts.Metadata(
        num_feature=model.n_features,
        task_type={"regression": "kRegressor", "multiclass": "kMultiClf"}.get(
            source.kind, "kBinaryClf"
        ),
        average_tree_output=False,
        num_target=1 if classes else n_outputs,
        num_class=[n_outputs] if classes else [1] * n_outputs,
        leaf_vector_shape=shape,
    )
    annotation = parts.TreeAnnotation(
        num_tree=n_trees,
        target_id=zeros if classes else outputs,
        class_id=outputs if classes else zeros,
    )
    name = _POSTPROCESSORS.get(source.link or "", "identity")
    postprocessor = parts.PostProcessorFunc(name="identity" if source.one_vs_rest else name)
    dtype = np.dtype(source.dtype).name
    return parts.ModelBuilder(
        threshold_type=dtype,
        leaf_output_type=dtype,
        metadata=metadata,
        tree_annotation=annotation,
        postprocessor=postprocessor,
        base_scores=source.base.tolist(),
    )


def _add(builder: Any, source: ModelIR, tree: TreeIR) -> None:
    at, values = tree.structure, source.constants(tree)
    builder.start_tree()
    for node in range(at.n_nodes):
        builder.start_node(node)
        if at.feature[node] < 0:
            leaf = values[at.leaf[node]]
            builder.leaf(float(leaf[0]) if len(leaf) == 1 else leaf.tolist())
        else:
            _add_test(builder, source, tree, node)
        builder.end_node()
    builder.end_tree()


def _add_test(builder: Any, source: ModelIR, tree: TreeIR, node: int) -> None:
    at = tree.structure
    feature, missing_left = int(at.feature[node]), bool(at.missing_left[node])
    children = {"left_child_key": int(at.left[node]), "right_child_key": int(at.right[node])}
    if node not in tree.codes_left:
        builder.numerical_test(
            feature, float(tree.threshold[node]), default_left=missing_left, opname="<=", **children
        )
        return
    # What is in no list goes where missing values go.
    listed = tree.codes_left[node]
    if missing_left:
        listed = np.setdiff1d(np.arange(int(source.model.mapper.n_bins_[feature])), listed)
    builder.categorical_test(
        feature,
        default_left=missing_left,
        category_list=listed.tolist(),
        category_list_right_child=missing_left,
        **children,
    )
