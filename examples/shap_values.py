"""SHAP values: what each feature contributes to each of two outputs of a row.

Together with the base values they add up to the predictions.
"""

import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    energy = load("energy")
    X, X_test, y, _ = energy.split()
    names = energy.feature_names
    model = PolyleafRegressor(n_estimators=150, max_leaves=16, random_state=0).fit(X, y)

    values, base = model.shap_values(X_test), np.asarray(model.shap_base_values())
    error = float(np.abs(base + values.sum(axis=1) - model.predict(X_test)).max())
    print(f"contributions and base values add up to predictions but for {error:.1e}")

    row = int(model.predict(X_test)[:, 0].argmax())
    for output, name in enumerate(energy.output_names):
        largest = np.argsort(-np.abs(values[row, :, output]))[:3]
        parts = ", ".join(f"{names[f]} {values[row, f, output]:+.1f}" for f in largest)
        print(f"row {row}, {name}: {base[output]:.1f} as a rule, {parts}")

    importance = model.feature_importance("shap", per_output=True, X=X_test)
    glazing = importance[:, names.index("glazing_area")] / importance.sum(axis=1)
    print(
        f"the glazed area makes {glazing[0]:.0%} of what moves heating, {glazing[1]:.0%} for "
        "cooling"
    )

    pairs = np.abs(model.shap_values(X_test, interactions=True)).mean(axis=0)[..., 0]
    pairs[np.diag_indices(len(names))] = 0
    one, other = np.unravel_index(pairs.argmax(), pairs.shape)
    print(f"{names[one]} and {names[other]} do most together")
    return {
        "error": error,
        "glazing for heating": float(glazing[0]),
        "for cooling": float(glazing[1]),
    }


if __name__ == "__main__":
    main()
