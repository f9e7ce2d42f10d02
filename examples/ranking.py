"""Ranking for two goals: one model has all trade-offs between relevance and margin.

Products are found for queries of a shop. Each of the nine scores of one model weighs the two goals
differently. On held-out queries the score with most margin is chosen whose NDCG of relevance is at
most 2 % below the best.
"""

import numpy as np

from polyleaf import PolyleafRanker


def make_shop(n_queries: int, n_found: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, relevance and margin, and the query of each product that was found."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), n_found)
    match, rating, price = rng.random((3, len(qid)))
    relevance = 3 * match + rating + rng.normal(0, 0.5, len(qid))
    margin = 3 * price - match + rng.normal(0, 0.5, len(qid))
    goals = np.clip(np.floor(np.column_stack([relevance, margin])), 0, 4)
    return np.column_stack([match, rating, price]), goals, qid


def main() -> dict[str, float]:
    X, goals, qid = make_shop(200, 20, seed=0)
    X_held, goals_held, qid_held = make_shop(100, 20, seed=1)
    X_test, goals_test, qid_test = make_shop(100, 20, seed=2)

    shares = np.linspace(0, 1, 9)
    weights = np.column_stack([1 - shares, shares])
    model = PolyleafRanker(n_estimators=100, learning_rate=0.1, goal_weights=weights)
    model.fit(X, goals, qid=qid)
    model.choose_goal_weights(X_held, goals_held, qid=qid_held, goal=0, max_loss=0.02)

    front = model.score_goals(X_test, goals_test, qid=qid_test)
    for j, (relevance, margin) in enumerate(front):
        chosen = " (chosen)" if j == model.chosen_score_ else ""
        print(f"weight of margin {shares[j]:.3f}: NDCG {relevance:.3f}, {margin:.3f}{chosen}")
    chosen_relevance, chosen_margin = front[model.chosen_score_]
    return {
        "loss of relevance": 1 - chosen_relevance / front[:, 0].max(),
        "gain of margin": chosen_margin - front[0, 1],
    }


if __name__ == "__main__":
    main()
