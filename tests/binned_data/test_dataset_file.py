"""A data set that was saved and loaded trains the same models."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from polyleaf import Dataset, PolyleafRanker, PolyleafRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 4))
Y = np.column_stack([X[:, 0], X[:, 1] ** 2])
WEIGHT = RNG.random(200)
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(
    few=[f"c{i % 3}" for i in range(200)], many=[f"c{i % 190}" for i in range(200)]
)
MANY = FRAME.assign(many=[f"c{i}" for i in range(200)])


@pytest.mark.parametrize(
    ("table", "options", "parameters"),
    [
        (X, {"y": Y}, {}),
        (X, {"y": Y[:, 0], "sample_weight": WEIGHT, "offset": X[:, 2]}, {}),
        (FRAME, {"y": pd.DataFrame(Y, columns=["u", "v"])}, {}),
        (pd.concat([MANY, MANY.assign(many=[f"d{i}" for i in range(200)])]),
         {"y": np.tile(Y[:, 0], 2)}, {}),
        (X, {"y": Y, "keep_features": True}, {"leaf": "linear"}),
        (scipy.sparse.random(200, 30, 0.05, "csr", random_state=0), {"y": Y[:, 0]}, {}),
    ],
)  # fmt: skip
def test_models_are_the_same(table, options, parameters, tmp_path):
    data = Dataset(table, **options)
    data.save(tmp_path / "data.npz")
    again = Dataset.load(tmp_path / "data.npz")
    assert again.mapper.has_same_bins(data.mapper) and again.shape == data.shape
    np.testing.assert_array_equal(again.codes, data.codes)
    first, second = (
        PolyleafRegressor(n_estimators=4, max_leaves=6, **parameters).fit(d) for d in (data, again)
    )
    assert first.model_.to_bytes() == second.model_.to_bytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "data.npz"]


def test_queries_and_evaluation_sets(tmp_path):
    data = Dataset(X, (Y[:, 0] > 0).astype(int), qid=np.arange(200) // 10)
    data.save(tmp_path / "d")
    again = Dataset.load(tmp_path / "d")
    models = [PolyleafRanker(n_estimators=3).fit(d) for d in (data, again)]
    assert models[0].model_.to_bytes() == models[1].model_.to_bytes()
    train = Dataset(X, Y)
    held = Dataset(X[::-1] + 0.1, Y, reference=train)
    logs = []
    train.save(tmp_path / "train")
    held.save(tmp_path / "held")
    loaded = [Dataset.load(tmp_path / name) for name in ("train", "held")]
    for first, second in ((train, held), loaded):
        model = PolyleafRegressor(n_estimators=3).fit(first, eval_set=[(second, None)])
        logs.append(model.evals_result_)
    assert logs[0] == logs[1]


def test_what_is_no_data_set_is_refused(tmp_path):
    with pytest.raises(ValueError, match="y has values of type object"):
        Dataset(X, np.array([None, *range(199)], object)).save(tmp_path / "d")
    assert not list(tmp_path.iterdir())
    (tmp_path / "text").write_text("no data set")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    Dataset(X, Y).save(tmp_path / "cut")
    content = (tmp_path / "cut").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    for name in ("text", "other.npz", "cut"):
        with pytest.raises(ValueError, match=f"{name}' is not a file of a Dataset"):
            Dataset.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Dataset.load(tmp_path / "absent")
