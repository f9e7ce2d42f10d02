"""Converter for skl2onnx: export of scikit-learn pipelines that contain Polyleaf estimators."""

from __future__ import annotations

from typing import Any

from polyleaf.export.onnx_graph import to_onnx
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.optional_packages import optional_package


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
    type of the input, as regressors of scikit-learn do; classifiers give `label` and
    `probabilities`, or raw scores with the option ``raw_scores``, which scikit-learn's
    meta-estimators ask for.
    Categorical features are not supported, since pipelines do not pass codes on.
    """
    with optional_package("register_skl2onnx needs skl2onnx", "onnx"):
        from skl2onnx import update_registered_converter
    for cls in estimators:
        set_types, options = _set_regressor_types, None
        if getattr(cls, "_estimator_type", None) == "classifier" or hasattr(cls, "predict_proba"):
            set_types, choices = _set_classifier_types, [True, False]
            options = {"zipmap": [*choices, "columns"], "nocl": choices, "raw_scores": choices}
        update_registered_converter(cls, cls.__name__, set_types, _convert, options=options)


def _make_tensor_type(operator: Any, n_columns: int) -> Any:
    """Return the type of the input, as for estimators of scikit-learn, which can be combined."""
    from skl2onnx.common import data_types

    is_double = _is_double(operator)
    tensor = data_types.DoubleTensorType if is_double else data_types.FloatTensorType
    return tensor([None, n_columns])


def _set_regressor_types(operator: Any) -> None:
    n_outputs = operator.raw_operator.model_.n_outputs
    operator.outputs[0].type = _make_tensor_type(operator, n_outputs)


def _set_classifier_types(operator: Any) -> None:
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    estimator = operator.raw_operator
    is_multilabel = estimator.model_.metadata["kind"] == "multilabel"
    n_columns = estimator.model_.n_outputs if is_multilabel else len(estimator.classes_)
    is_text = estimator.classes_.dtype.kind in "OUS"
    label = StringTensorType if is_text else Int64TensorType
    operator.outputs[0].type = label([None, n_columns] if is_multilabel else [None])
    operator.outputs[1].type = _make_tensor_type(operator, n_columns)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Insert the graph of a fitted estimator between the input and outputs of skl2onnx."""
    import onnx

    estimator = operator.raw_operator
    if estimator.model_.mapper.is_categorical_.any():
        refuse("categories", "skl2onnx", estimator=type(estimator).__name__)
    prefix = scope.get_unique_operator_name("polyleaf")
    exported = onnx.compose.add_prefix(to_onnx(estimator), prefix)
    graph = exported.graph
    elem_type = onnx.TensorProto.DOUBLE if _is_double(operator) else onnx.TensorProto.FLOAT
    container.initializers.extend(graph.initializer)
    versions = ((opset.domain, opset.version) for opset in exported.opset_import)
    container.node_domain_version_pair_sets.update(versions)
    rows = graph.input[0]
    _add_cast(container, operator.inputs[0].full_name, rows.name, rows.type.tensor_type.elem_type)
    container.nodes.extend(graph.node)
    outputs = {output.name.removeprefix(prefix): output for output in graph.output}
    if len(operator.outputs) == 1:
        scores = outputs.get("predictions", outputs["scores"])
        return _add_cast(container, scores.name, operator.outputs[0].full_name, elem_type)
    label = outputs["label"]
    label_type = label.type.tensor_type.elem_type
    _add_cast(container, label.name, operator.outputs[0].full_name, label_type)
    if container.get_options(estimator, {"raw_scores": False})["raw_scores"]:
        result = outputs["scores"].name
        if len(getattr(estimator, "classes_", ())) == 2 and estimator.model_.n_outputs == 1:
            negative = f"{prefix}negative_scores"
            container.nodes.append(onnx.helper.make_node("Neg", [result], [negative], negative))
            both = f"{prefix}both_scores"
            node = onnx.helper.make_node("Concat", [negative, result], [both], both, axis=1)
            container.nodes.append(node)
            result = both
    elif "probabilities" in outputs:
        result = outputs["probabilities"].name
    else:
        raise ValueError(
            "The objective gives no probabilities, which skl2onnx requires of classifiers: use "
            "polyleaf.export.to_onnx."
        )
    _add_cast(container, result, operator.outputs[1].full_name, elem_type)


def _is_double(operator: Any) -> bool:
    return type(operator.inputs[0].type).__name__ == "DoubleTensorType"


def _add_cast(container: Any, name: str, output: str, elem_type: int) -> None:
    """Add a node that copies a tensor to another name and type."""
    import onnx

    container.nodes.append(
        onnx.helper.make_node("Cast", [name], [output], name=f"{output}_cast", to=elem_type)
    )
