"""Survival analysis with censored rows: discrete hazards of intervals as labels.

Machines fail sooner where they run hot and old; most still run when the records end. The data are
generated, so that the true curves are known.
"""

import numpy as np

from polyleaf import PolyleafClassifier
from polyleaf.distributions import survival


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    heat, age = rng.uniform(0, 1, (2, 4000))
    X = np.column_stack([heat, age, rng.standard_normal((4000, 3))]).astype(np.float32)
    rate = 0.05 * np.exp(3 * heat * (age > 0.5))
    failed, recorded = rng.exponential(1 / rate), rng.uniform(2, 20, 4000)
    time, event = np.minimum(failed, recorded), failed <= recorded

    ends = survival.make_intervals(time, event, 15)
    labels, weight = survival.encode_discrete_hazard(time, event, ends, return_weight=True)
    train, held, test = slice(2400), slice(2400, 3000), slice(3000, None)
    model = PolyleafClassifier(
        n_estimators=500,
        learning_rate=0.05,
        max_leaves=8,
        early_stopping_rounds=30,
        missing_targets="ignore",
    )
    model.fit(
        X[train],
        labels[train],
        weight[train],
        X_val=X[held],
        y_val=labels[held],
        sample_weight_val=weight[held],
    )

    found = survival.survival_curves(model.predict_proba(X[test]), ends)
    truth = np.exp(-rate[test, None] * ends)
    error = float(np.abs(found.survival - truth).mean())
    one_for_all = float(np.abs(truth.mean(axis=0) - truth).mean())
    print(f"{event.mean():.0%} of the machines have failed")
    print(f"curves are {error:.3f} off the true ones (one curve for all: {one_for_all:.3f})")
    sooner = float(np.corrcoef(found.risk_score(), rate[test])[0, 1])
    print(f"correlation of the risk with the true rate: {sooner:.2f}")
    return {"error": error, "of one curve": one_for_all, "correlation": sooner}


if __name__ == "__main__":
    main()
