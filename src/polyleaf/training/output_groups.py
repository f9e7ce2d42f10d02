"""Groups of outputs: a round grows one tree for each group, with leaves for its outputs only.

Groups that have every output twice, such as `[[0, 1], [0], [1]]`, alternate: the first groups that
have all outputs are those of even rounds, and the others those of odd rounds. So do more groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyleaf.model.leaf_kinds import TreeOutputs
from polyleaf.objectives import Objective
from polyleaf.settings.parameters import OutputParameters
from polyleaf.user_data.validation import get_index


def make_output_groups(
    p: OutputParameters,
    n_outputs: int,
    names: Sequence[str] | None = None,
    objective: Objective | None = None,
) -> list[list[TreeOutputs]]:
    """Return, for the rounds that alternate, the outputs of each tree, by their first output.

    `names`: names of outputs. `objective`: says which outputs are one target or task. Raises a
    ValueError unless `p.output_groups` has every output once, or every output in each turn.
    """
    spec: Any = _get_spec(p)
    if n_outputs == 1 or isinstance(spec, str):  # "auto" has been replaced where it is searched
        return [[None]]
    if spec is None and p.multi_strategy == "multi_output_tree":
        return [[None]]
    if spec is None:
        spec = n_outputs
    if isinstance(spec, int | np.integer):
        if spec > n_outputs:
            raise ValueError(
                f"output_groups={spec} asks for more groups than there are outputs ({n_outputs})."
            )
        groups = [part.tolist() for part in np.array_split(np.arange(n_outputs), spec)]
    else:
        groups = [_read_group(group, n_outputs, names, objective) for group in spec]
    turns: list[list[list[int]]] = [[]]
    for group in groups:
        if sum(map(len, turns[-1])) >= n_outputs:
            turns.append([])
        turns[-1].append(group)
    different = {tuple(sorted(tuple(sorted(group)) for group in turn)) for turn in turns}
    if len(different) < len(turns):
        raise ValueError(
            "output_groups has the same groups twice, but rounds alternate between different ones; "
            "give them once."
        )
    return [_check_turn(turn, n_outputs, names) for turn in turns]


def _check_turn(
    groups: list[list[int]], n_outputs: int, names: Sequence[str] | None
) -> list[TreeOutputs]:
    """Return the groups of a round if they have every output once."""
    counts = np.bincount([k for group in groups for k in group], minlength=n_outputs)
    if (counts != 1).any():
        k = int(np.argmax(counts != 1))
        name = f" ({names[k]!r})" if names is not None else ""
        where = "in no group" if counts[k] == 0 else f"there {counts[k]} times"
        raise ValueError(
            f"output_groups must have every output once, but output {k}{name} is {where}; a group "
            "of its own is [[...], [output]]."
        )
    if len(groups) == 1:
        return [None]
    return [np.array(sorted(group), np.int32) for group in sorted(groups, key=min)]


def count_groups(p: OutputParameters, n_outputs: int) -> list[int]:
    """Return the number of outputs of each group, where names count as one output."""
    spec = _get_spec(p)
    if isinstance(spec, list | tuple):
        return [max(1, np.size(group)) for group in spec] or [n_outputs]
    (groups,) = make_output_groups(p, n_outputs)
    return [n_outputs if group is None else len(group) for group in groups]


def has_shared_trees(p: OutputParameters, n_targets: int | None = None) -> bool:
    """Return whether several of the targets, of this number if it is known, may share a tree."""
    groups = _get_spec(p)
    if isinstance(groups, int | np.integer):
        return n_targets is None or int(groups) < n_targets
    if isinstance(groups, list | tuple):
        return any(np.size(group) > 1 for group in groups)
    return p.multi_strategy == "multi_output_tree"


def _get_spec(p: OutputParameters) -> Any:
    """Return the parameter, with an array as lists."""
    spec: Any = p.output_groups
    return spec.tolist() if isinstance(spec, np.ndarray) else spec


def _read_group(
    group: object, n_outputs: int, names: Sequence[str] | None, objective: Objective | None
) -> list[int]:
    """Return the numbers of the outputs of one group of the parameter."""
    if isinstance(group, str) or not np.iterable(group):
        raise ValueError(
            "output_groups must be a list of lists of outputs, such as [[0, 1], [2]]; got the "
            f"group {group!r}."
        )
    outputs = [k for member in group for k in _find_outputs(member, n_outputs, names, objective)]
    if not outputs:
        raise ValueError("output_groups has an empty group; leave it out.")
    return outputs


def _find_outputs(
    member: Any, n_outputs: int, names: Sequence[str] | None, objective: Objective | None
) -> list[int]:
    """Return the output of a number or name, or all outputs of the name of a target."""
    outputs = []
    is_number = isinstance(member, int | np.integer)
    if names is not None and objective is not None and not is_number and member not in names:
        outputs = _find_target(member, names, objective)
    return outputs or [get_index(member, names, n_outputs, "output_groups", "output")]


def _find_target(member: Any, names: Sequence[str], objective: Objective) -> list[int]:
    """Return the outputs of a task, or of a target with several outputs, which are named after
    it; none if there is no such target."""
    for place in objective.tasks:
        if place.task.name == member:
            return list(range(len(names)))[place.scores]
    columns = objective.score_columns(len(names))
    targets = [np.flatnonzero(columns == c).tolist() for c in np.unique(columns).tolist()]
    prefix = f"{member}_"
    named = [outputs for outputs in targets if all(names[k].startswith(prefix) for k in outputs)]
    # The outputs of the target "a_b" begin with the name of the target "a", too.
    return min(named, key=lambda outputs: sum(len(names[k]) for k in outputs), default=[])
