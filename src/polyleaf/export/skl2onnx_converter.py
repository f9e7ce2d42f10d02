"""Converter for skl2onnx: export of scikit-learn pipelines that contain Polyleaf estimators."""

from __future__ import annotations

from typing import Any

from polyleaf.export.onnx_graph import to_onnx


def register_skl2onnx(*estimators: type) -> None:
    """Register converters, so that skl2onnx can export estimators alone and in pipelines.

    Parameters
    ----------
    *estimators : type
        :class:`polyleaf.PolyleafRegressor`, :class:`polyleaf.PolyleafClassifier` and subclasses.

    Raises
    ------
    ImportError
        If skl2onnx is not installed.

    Notes
    -----
    `skl2onnx.to_onnx` then calls :func:`polyleaf.export.to_onnx`. Regressors give `variable` of the
    type of the input, as those of scikit-learn do; classifiers give `label` and `probabilities`
    (float32). Categorical features are not supported, since pipelines do not pass codes on.
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

    # The type of the input, as for regressors of scikit-learn, so that both can be combined.
    is_double = isinstance(operator.inputs[0].type, DoubleTensorType)
    tensor = DoubleTensorType if is_double else FloatTensorType
    operator.outputs[0].type = tensor([None, operator.raw_operator.model_.n_outputs])


def _set_classifier_types(operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    estimator = operator.raw_operator
    is_multilabel = estimator.model_.metadata["kind"] == "multilabel"
    n_columns = estimator.model_.n_outputs if is_multilabel else len(estimator.classes_)
    is_text = estimator.classes_.dtype.kind in "OUS"
    label = StringTensorType if is_text else Int64TensorType
    operator.outputs[0].type = label([None, n_columns] if is_multilabel else [None])
    operator.outputs[1].type = FloatTensorType([None, n_columns])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Insert the graph of a fitted estimator between the input and outputs of skl2onnx."""
    import onnx

    estimator = operator.raw_operator
    if estimator.model_.mapper.is_categorical_.any():
        raise ValueError(
            f"{type(estimator).__name__} has categorical features, which pipelines do not encode "
            'as the graph needs them: use polyleaf.export.to_onnx(model, input="columns").'
        )
    prefix = scope.get_unique_operator_name("polyleaf")
    exported = onnx.compose.add_prefix(to_onnx(estimator), prefix)
    graph, float32 = exported.graph, onnx.TensorProto.FLOAT
    container.initializers.extend(graph.initializer)
    versions = ((opset.domain, opset.version) for opset in exported.opset_import)
    container.node_domain_version_pair_sets.update(versions)
    rows = graph.input[0]
    _add_cast(container, operator.inputs[0].full_name, rows.name, rows.type.tensor_type.elem_type)
    container.nodes.extend(graph.node)
    outputs = {output.name.removeprefix(prefix): output for output in graph.output}
    if len(operator.outputs) == 1:
        scores = outputs.get("predictions", outputs["scores"])
        is_double = type(operator.outputs[0].type).__name__ == "DoubleTensorType"
        elem_type = onnx.TensorProto.DOUBLE if is_double else float32
        return _add_cast(container, scores.name, operator.outputs[0].full_name, elem_type)
    if "probabilities" not in outputs:
        raise ValueError(
            "The objective gives no probabilities, which skl2onnx requires of classifiers: use "
            "polyleaf.export.to_onnx."
        )
    label, probabilities = outputs["label"], outputs["probabilities"]
    _add_cast(
        container, label.name, operator.outputs[0].full_name, label.type.tensor_type.elem_type
    )
    _add_cast(container, probabilities.name, operator.outputs[1].full_name, float32)


def _add_cast(container: Any, name: str, output: str, elem_type: int) -> None:
    """Add a node that copies a tensor to another name and type."""
    import onnx

    container.nodes.append(
        onnx.helper.make_node("Cast", [name], [output], name=f"{output}_cast", to=elem_type)
    )
