"""Estimators inside scikit-learn pipelines that skl2onnx converts: a converter puts our graph into its own.

Owns what skl2onnx asks of a converter: types of outputs, and names that nobody else has. Must not know how a
model becomes a graph (`onnx_graph`).
"""

from __future__ import annotations

from typing import Any

from polyleaf.export.onnx_graph import to_onnx

__all__ = ["register_skl2onnx"]


def register_skl2onnx(*estimators: type) -> None:
    """Teach skl2onnx to convert estimators of these classes, alone or as the last step of a pipeline.

    Parameters
    ----------
    *estimators : classes of estimators
        :class:`polyleaf.PolyleafRegressor`, :class:`polyleaf.PolyleafClassifier` and classes derived from
        them.

    Raises
    ------
    ImportError
        Where skl2onnx is not installed.

    Notes
    -----
    `skl2onnx.to_onnx` then asks :func:`polyleaf.export.to_onnx` for the graph. Regression gives `variable`,
    of the type of its input as regressors do there, classes `label` and `probabilities` (float32). Features
    of categories are refused there: their codes are not what a pipeline hands on.
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError(
            'register_skl2onnx needs skl2onnx: pip install "polyleaf[onnx]".'
        ) from error
    for cls in estimators:
        is_classifier = getattr(cls, "_estimator_type", None) == "classifier" or hasattr(
            cls, "predict_proba"
        )
        update_registered_converter(
            cls,
            cls.__name__,
            _set_classifier_types if is_classifier else _set_regressor_types,
            _convert,
            options={"zipmap": [True, False, "columns"], "nocl": [True, False]}
            if is_classifier
            else None,
        )


def _set_regressor_types(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    # As those of scikit-learn's own regressors: what is put together with it is of one type.
    kind = (
        DoubleTensorType
        if isinstance(operator.inputs[0].type, DoubleTensorType)
        else FloatTensorType
    )
    operator.outputs[0].type = kind([None, operator.raw_operator.model_.n_outputs])


def _set_classifier_types(operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    estimator = operator.raw_operator
    several = estimator.model_.metadata["kind"] == "multilabel"
    n_columns = estimator.model_.n_outputs if several else len(estimator.classes_)
    is_text = estimator.classes_.dtype.kind in "OUS"
    label = StringTensorType if is_text else Int64TensorType
    operator.outputs[0].type = label([None, n_columns] if several else [None])
    operator.outputs[1].type = FloatTensorType([None, n_columns])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """The graph of a fitted estimator, between the input and the outputs that skl2onnx has for it."""
    import onnx

    estimator = operator.raw_operator
    if estimator.model_.mapper.is_categorical_.any():
        raise ValueError(
            f"{type(estimator).__name__} learned from features of categories, which a pipeline hands on as "
            'they are, while the graph reads codes: use polyleaf.export.to_onnx(model, input="columns").'
        )
    prefix = scope.get_unique_operator_name("polyleaf")
    made = onnx.compose.add_prefix(to_onnx(estimator), prefix)
    graph, float32 = made.graph, onnx.TensorProto.FLOAT
    container.initializers.extend(graph.initializer)
    versions = ((opset.domain, opset.version) for opset in made.opset_import)
    container.node_domain_version_pair_sets.update(versions)
    given = graph.input[0]
    _cast(container, operator.inputs[0].full_name, given.name, given.type.tensor_type.elem_type)
    container.nodes.extend(graph.node)
    ours = {output.name.removeprefix(prefix): output for output in graph.output}
    if len(operator.outputs) == 1:
        found = ours.get("predictions", ours["scores"])
        is_double = type(operator.outputs[0].type).__name__ == "DoubleTensorType"
        kind = onnx.TensorProto.DOUBLE if is_double else float32
        return _cast(container, found.name, operator.outputs[0].full_name, kind)
    if "probabilities" not in ours:
        raise ValueError(
            "The objective gives no probabilities, which skl2onnx wants of a classifier: use "
            "polyleaf.export.to_onnx."
        )
    label, probabilities = ours["label"], ours["probabilities"]
    _cast(container, label.name, operator.outputs[0].full_name, label.type.tensor_type.elem_type)
    _cast(container, probabilities.name, operator.outputs[1].full_name, float32)


def _cast(container: Any, name: str, called: str, kind: int) -> None:
    """The same values under another name, as another type."""
    import onnx

    container.nodes.append(
        onnx.helper.make_node("Cast", [name], [called], name=f"{called}_cast", to=kind)
    )
