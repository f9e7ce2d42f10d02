"""Declaration of estimator parameters: name, type, default, allowed values and text, each stated
once.

A group of parameters is a class under `parameter_group`; a parameter is a line `name: type =
parameter(default=...)` with a string below it that documents it. `estimator_parameters` merges
groups into one class, whose constructor `inspect`, editors and type checkers read (PEP 681).
scikit-learn's constraints (`make_constraints`) and the docstring (`format_parameters`) follow.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from polyleaf.settings.aliases import raise_unknown_parameters

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., object])


def parameter(
    *,
    default: T,
    interval: str = "",
    choices: Iterable[str] = (),
    common: bool = False,
    kw_only: bool = True,
    requires: Mapping[str, str] | None = None,
    none: str = "",
) -> T:
    """Declare a parameter. The first sentence of the string below it is its summary.

    Parameters
    ----------
    interval : str
        Allowed range of numbers, such as "(0, 1]" or "[1, inf)".
    choices : iterable of str
        Allowed strings, where the annotation is just `str`.
    common : bool
        Whether it is listed among the first, most common parameters of the docstring.
    requires : dict, optional
        Other parameters and their values, one of which it has no effect without.
    none : str
        What the default None stands for.
    """
    metadata = {
        "none": none,
        "interval": interval,
        "choices": tuple(choices),
        "common": common,
        "requires": requires or {},
    }
    field: Any = dataclasses.field(default=default, kw_only=kw_only, metadata=metadata)
    return field


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def parameter_group(cls: type[T]) -> type[T]:
    """Make a group of parameters: a frozen dataclass, base of a part of the training
    configuration."""
    group = dataclasses.dataclass(frozen=True, eq=False, repr=False, match_args=False)(cls)
    group._is_parameter_group = True  # type: ignore[attr-defined]
    return group


@dataclass_transform(kw_only_default=True)
def frozen_config(cls: type[T]) -> type[T]:
    """Make a frozen dataclass that extends a group of parameters."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def estimator_parameters(cls: type[T]) -> type[T]:
    """Make the base class of an estimator: constructor and class attributes of its parameters.

    Bases made by `parameter_group` are merged into the class, last base first, and do not appear in
    the method resolution order. `==` and `repr` stay those of the class.
    """
    made = dataclasses.dataclass(eq=False, repr=False, match_args=False)(_merge_groups(cls))
    initialise: Any = made.__init__
    fields = [field for field in dataclasses.fields(made) if field.init]
    names = frozenset(field.name for field in fields)
    positional = [field.name for field in fields if not field.kw_only]

    @functools.wraps(initialise)
    def __init__(self: object, *args: object, **parameters: object) -> None:
        if args or not parameters.keys() <= names:
            _check_arguments(type(self), positional, names, args, parameters)
        initialise(self, *args, **parameters)

    made.__init__ = __init__
    return made


def suggest_on_unknown_kwargs(method: Method) -> Method:
    """Decorate a method of an estimator: unknown keywords raise an error with a suggestion."""
    parameters = [name for name in inspect.signature(method).parameters if name != "self"]

    @functools.wraps(method)
    def wrapper(self: Any, *args: object, **kwargs: Any) -> object:
        if kwargs and not kwargs.keys() <= set(parameters):
            where = f"{type(self).__name__}.{method.__name__}"
            raise_unknown_parameters(where, kwargs, parameters, self._get_param_names())
        return method(self, *args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _merge_groups(cls: Any) -> Any:
    groups = [base for base in reversed(cls.__mro__) if "_is_parameter_group" in vars(base)]
    if not groups:
        return cls
    names = {name: group for group in groups for name in inspect.get_annotations(group)}
    annotations = inspect.get_annotations(cls)
    namespace = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    for name, group in names.items():
        field = group.__dataclass_fields__[name]
        namespace[name] = dataclasses.field(
            default=field.default, kw_only=field.kw_only, metadata=field.metadata
        )
    hints = {name: inspect.get_annotations(group)[name] for name, group in names.items()}
    namespace["__annotations__"] = hints | annotations
    namespace["_group_of_parameter"] = names
    bases = tuple(base for base in cls.__bases__ if base not in groups)
    return type(cls)(cls.__name__, bases, namespace)


def _check_arguments(
    cls: type,
    positional: Sequence[str],
    names: Iterable[str],
    args: Sequence[object],
    parameters: Mapping[str, object],
) -> None:
    """Raise a TypeError for arguments that the constructor does not take."""
    raise_unknown_parameters(cls.__name__, parameters, names)
    n = len(positional)
    if len(args) > n:
        raise TypeError(
            f"{cls.__name__}() takes {n} positional parameter{'' if n == 1 else 's'} and was given "
            f"{len(args)}: pass the others by name, such as n_estimators=100."
        )
    types = [t for spec in get_param_specs(cls) if spec.name in positional for t in spec.types]
    takes_mapping = any((get_origin(t) or t) is Mapping for t in types)
    if args and isinstance(args[0], Mapping) and not takes_mapping:
        raise TypeError(
            f"{cls.__name__}() was given a dict as its first parameter: pass parameters as "
            f"keywords, {cls.__name__}(**parameters)."
        )


class ParamSpec(NamedTuple):
    """Declaration of a parameter."""

    name: str
    text: str
    default: object
    types: tuple[Any, ...]  # alternatives of its annotation
    topic: str  # first line of the docstring of its group
    interval: str
    choices: tuple[str, ...]
    common: bool
    requires: Mapping[str, str]
    none: str

    @property
    def shown_default(self) -> str:
        """The default as in a docstring."""
        return json.dumps(self.default) if isinstance(self.default, str) else repr(self.default)

    def is_default(self, value: object) -> bool:
        """Return whether a value equals the default; arrays and lists are none."""
        is_one = isinstance(value, str) or not hasattr(value, "__len__")
        return value is self.default or (is_one and bool(value == self.default))

    def has_effect(self, values: Mapping[str, object]) -> bool:
        """Return whether it has an effect beside these values of other parameters."""
        return not self.requires or any(values[n] == v for n, v in self.requires.items())

    @property
    def kind(self) -> str:
        """Its type in a docstring: `float in (0, 1]`, `{"pre", "post"}`, `int or None`."""
        return " or ".join(_distinct(self._describe_type(t) for t in self.types))

    def _describe_type(self, t: Any) -> str:
        texts = get_args(t) if get_origin(t) is Literal else self.choices if t is str else ()
        if texts:
            return f"{{{', '.join(map(json.dumps, texts))}}}"
        kind = get_origin(t) or t
        words = _KINDS[kind][0] if kind in _KINDS else kind.__name__
        interval = re.sub(r"\d{10,}\]", "inf)", self.interval)  # limits of the core's integers
        return f"{words} in {interval}" if interval and kind in (int, float) else words

    @property
    def summary(self) -> str:
        """First sentence of its text."""
        return self.text.split(". ")[0].removesuffix(".") + "."

    def read(self, text: str) -> object:
        """Parse a value: a number, list or dict of JSON or Python, None, True, False, or plain text
        if the parameter takes strings.

        Raises a ValueError if it is plain text and the parameter takes no strings.
        """
        words = {"None": None, "True": True, "False": False}
        if text in words:
            return words[text]
        try:
            return json.loads(text.replace("None", "null"))
        except json.JSONDecodeError:
            pass
        with suppress(ValueError, SyntaxError):
            return ast.literal_eval(text)
        if object in self.types:
            raise ValueError(f"{self.name} takes an object: set it in Python.")
        if not any(t in (str, Any) or get_origin(t) is Literal for t in self.types):
            raise ValueError(f"{self.name} is {self.kind}, not {text!r}.")
        return text


def get_param_specs(cls: type) -> tuple[ParamSpec, ...]:
    """Return the parameters of a class in the order of its constructor."""
    return _get_param_specs(cls)


@functools.cache
def _get_param_specs(cls: Any) -> tuple[ParamSpec, ...]:
    hints = get_type_hints(cls)
    homes: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        homes |= dict.fromkeys(inspect.get_annotations(base), base)
        homes |= vars(base).get("_group_of_parameter", {})
    specs = []
    for field in sorted(dataclasses.fields(cls), key=lambda field: bool(field.kw_only)):
        if not field.metadata:
            continue
        name, hint, home = field.name, hints[field.name], homes[field.name]
        types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        topic = (home.__doc__ or home.__name__).splitlines()[0].rstrip(".")
        text = _read_texts(home.__module__).get((home.__name__, name), "")
        specs.append(ParamSpec(name, text, field.default, types, topic, **field.metadata))
    return tuple(specs)


@functools.cache
def _read_texts(module: str) -> dict[tuple[str, str], str]:
    """Return the strings below the fields of the classes of a module, by class and field.

    They are read from the source, since bytecode does not keep them. Without source the
    documentation is empty.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {
        (group.name, ast.unparse(field.target)): " ".join(str(below.value.value).split())
        for group in tree.body
        if isinstance(group, ast.ClassDef)
        for field, below in pairwise(group.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _distinct(values: Iterable[T]) -> list[T]:
    distinct: list[T] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct


# Constraints by which scikit-learn validates parameters, by name.
Constraints: TypeAlias = dict[str, Any]

# Types other than numbers and strings: name in the documentation, scikit-learn constraint.
_KINDS: dict[Any, tuple[str, object]] = {
    NoneType: ("None", None),
    bool: ("bool", "boolean"),
    Callable: ("callable", callable),
    Sequence: ("array-like", "array-like"),
    Mapping: ("dict", Mapping),
    np.ndarray: ("array-like", "array-like"),
}


# --- scikit-learn's checks ------------------------------------------------------------------------


def make_constraints(cls: type) -> Constraints:
    """Return the constraints that scikit-learn validates parameters with."""
    return {
        spec.name: "no_validation"
        if Any in spec.types
        else _distinct(_make_constraint(t, spec) for t in spec.types)
        for spec in get_param_specs(cls)
    }


def _make_constraint(t: object, spec: ParamSpec) -> object:
    from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

    kind = get_origin(t) or t
    if kind is Literal or (kind is str and spec.choices):
        return StrOptions(set(get_args(t) or spec.choices))
    if kind in (int, float):
        numbers = Integral if kind is int else Real
        if not spec.interval:
            return numbers
        low, high = (
            None if end.strip() == "inf" else kind(end) for end in spec.interval[1:-1].split(",")
        )
        closed = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}
        return Interval(numbers, low, high, closed=closed[spec.interval[0] + spec.interval[-1]])
    if getattr(kind, "_is_protocol", False):
        return HasMethods([name for name in vars(kind) if not name.startswith("_")])
    return _KINDS[kind][1] if kind in _KINDS else kind


# --- documentation --------------------------------------------------------------------------------


def format_parameters(cls: type) -> str:
    """Return the numpydoc sections Parameters (common ones) and Other Parameters (by topic)."""
    specs = get_param_specs(cls)
    rest = [spec for spec in specs if not spec.common]
    common = [spec for spec in specs if spec.common]
    lines = ["Parameters", "----------", *map(_format_entry, common)]
    lines += ["", "Other Parameters", "----------------"]
    for topic in _distinct(spec.topic for spec in rest):
        lines += ["", topic, *(_format_entry(spec) for spec in rest if spec.topic == topic)]
    return "\n".join(lines)


def _format_entry(spec: ParamSpec) -> str:
    text = textwrap.fill(spec.text, 96, break_long_words=False, break_on_hyphens=False)
    stands_for = f" ({spec.none})" if spec.none else ""
    head = f"{spec.name} : {spec.kind}, default={spec.shown_default}{stands_for}"
    return f"{head}\n{textwrap.indent(text, '    ')}"


_Class = TypeVar("_Class", bound=type)

_ATTRIBUTES = """
model_ : polyleaf.Model
    Trees and bins, and the projection of the features if there is one.
n_features_in_ : int
feature_names_in_ : ndarray of str
    Names of features, if X had names.
n_outputs_ : int
    Number of outputs: columns of y, labels or quantiles; 1 for one-dimensional targets and classes.
n_iter_ : int
    Number of rounds of the model.
best_iteration_ : int or None
    Round with the best score, from 0; None without early stopping.
best_score_ : float or None
    Score of that round.
evals_result_ : dict
    Metrics of each round, `{evaluation set: {metric: [value of each round]}}`.
evals_result_per_output_ : dict
    `{evaluation set: {metric: ndarray of shape (rounds, n_outputs)}}` for several outputs and
    metrics that are defined per output.
output_groups_ : list of list of int
    Outputs (raw scores) that share trees; every output twice if rounds alternate.
fit_times_ : dict of str to float
    Seconds of each phase of the fit, if the environment variable POLYLEAF_TIMING is set.
feature_importances_ : ndarray of shape (n_features,)
    Share of each feature in the total gain; in the number of splits if the model was saved without
    statistics.
""".strip("\n")


def add_parameter_docs(cls: _Class) -> _Class:
    """Insert the parameters and the common attributes into the docstring of an estimator."""
    fill_docstring(cls, {"{parameters}": format_parameters(cls), "{attributes}": _ATTRIBUTES})
    return cls


def fill_docstring(cls: type, texts: Mapping[str, str]) -> None:
    """Replace placeholders in a docstring, which loses its indentation as in Python 3.13."""
    if cls.__doc__ is None:  # python -OO
        return
    cls.__doc__ = inspect.cleandoc(cls.__doc__)
    for placeholder, text in texts.items():
        cls.__doc__ = cls.__doc__.replace(placeholder, text)
