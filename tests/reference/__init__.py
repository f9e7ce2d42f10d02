"""NumPy reference implementation of the core, as specified in docs/development/arithmetic.md.

It covers quantisation, gains, split search, growth order and leaf values, bit for bit, and small
boosting loops. It favours clarity over speed, and does not use the polyleaf package except for
default parameters. The core must equal it exactly; if they differ, the document decides which of
them is wrong.

Common names are imported here; `linear_leaves`, `linear_split_search` and `extreme_multilabel` are
imported by name.

Papers: GBDT-MO is Zhang and Jung, "GBDT-MO: Gradient Boosted Decision Trees for Multiple Outputs";
C-GB is Emami and Martínez-Muñoz, "Condensed-Gradient Boosting"; TFBT is Ponomareva et al., "Compact
multi-class boosted trees".

Shapes: n rows, n_used in use, F features, K outputs, m Hessian channels (0 unit, 1 shared, K
diagonal), C candidate splits. Sums are int64 and exact; gains are float32: scalars are wrapped in
`F32`.
"""

from reference.boosting import (
    balance_totals,
    boost,
    fit_tree,
    fit_tree_by_layers,
    logistic,
    poisson,
    softmax,
    squared_error,
)
from reference.categorical_gain_correction import CategoricalOverfit, estimate_overfit
from reference.hessians import exponential_hessian, margin_hessian, packed, softmax_hessian
from reference.leaf_arrays import (
    LinearLeaves,
    TopkLeaves,
    holds,
    leaf_values,
    linear_leaf_value,
    top_outputs,
)
from reference.leaf_fitting import fit_newton_leaves, fit_topk_leaves, leaf_sums, newton_steps
from reference.quantised_gradients import (
    F32,
    LARGEST_INTEGER,
    LARGEST_SUM,
    MISSING,
    N_CODES,
    SMALLEST_DERIVATIVE,
    histogram,
    quantise,
    quantise_column,
    select_rows,
    take,
    total,
)
from reference.sketches import (
    column_energy,
    count_sketch,
    csr_product,
    project,
    row_means,
    signed_projection,
    subspace_projection,
)
from reference.split_candidates import (
    Split,
    best_candidate,
    categorical_candidates,
    category_deviations,
    category_positions,
    feature_hash,
    filter_interactions,
    node_features,
    numeric_candidates,
    set_default_direction,
)
from reference.split_gain import (
    GAIN_RESOLUTION,
    full_sum,
    is_worthwhile,
    lane_sum,
    leaf_terms,
    mean_hessian,
    packed_diagonal,
    parent_score,
    split_terms,
)
from reference.tree import Tree, goes_left_table, leaf_of_row
from reference.tree_growth import GrowConfig, grow, next_batch
