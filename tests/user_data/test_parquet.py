"""A dataset from Parquet files in batches equals that of the whole table."""

import numpy as np
import pytest

from polyleaf import Dataset, PolyleafRegressor

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.arange(100),
            "x": rng.normal(size=100),
            "count": pd.array(np.where(rng.random(100) < 0.3, None, 3), dtype="Int64"),
            "colour": rng.choice(["red", "blue", None], 100),
            "kind": pd.Categorical(rng.choice(list("abc"), 100)),
            "weight": rng.random(100),
            "a": rng.normal(size=100),
            "b": rng.normal(size=100),
        }
    )


@pytest.fixture
def folder(table, tmp_path):
    (tmp_path / "sub").mkdir()
    for number, (begin, end) in enumerate([(0, 30), (30, 30), (30, 100)]):
        name = tmp_path / ("sub/2.parquet" if number == 2 else f"{number}.pq")
        part = pa.Table.from_pandas(table.iloc[begin:end], preserve_index=False)
        pq.write_table(part, name, row_group_size=17)
    (tmp_path / "_notes.parquet").write_text("of no table")
    (tmp_path / "notes.txt").write_text("nor this")
    return tmp_path


@pytest.mark.parametrize("batch_rows", [1, 7, 100_000])
def test_dataset_equals_that_of_the_whole_table(table, folder, batch_rows):
    found = Dataset.from_parquet(
        folder, ["a", "b"], sample_weight="weight", drop=["id"], batch_rows=batch_rows, max_bins=20
    )
    X = table[["x", "count", "colour", "kind"]]
    expected = Dataset(X, table[["a", "b"]], sample_weight=table["weight"], max_bins=20)
    assert (
        found.mapper.has_same_bins(expected.mapper)
        and found.feature_names == expected.feature_names
    )
    np.testing.assert_array_equal(found.codes, expected.codes)
    first, second = (PolyleafRegressor(n_estimators=3).fit(data) for data in (found, expected))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert first.model_.output_names == second.model_.output_names == ("a", "b")


def test_one_target_is_a_vector_of_its_type(folder, table):
    data = Dataset.from_parquet(
        [folder / "0.pq", folder / "sub" / "2.parquet"], "colour", drop=["id"]
    )
    assert data.y.tolist() == [None if pd.isna(value) else value for value in table["colour"]]
    assert Dataset.from_parquet(str(folder / "*.pq")).n_rows == 30


def test_hive_partitions_are_columns(table, tmp_path):
    table["year"] = np.arange(100) % 3 + 2020
    table["zip"] = np.where(np.arange(100) % 2 == 0, "01234", "56789")
    table.to_parquet(tmp_path, partition_cols=["year", "zip"])
    (tmp_path / "_delta_log").mkdir()
    table.to_parquet(tmp_path / "_delta_log" / "0.parquet")
    data = Dataset.from_parquet(tmp_path, "a", drop=["id", "b", "weight"])
    assert data.feature_names == ("x", "count", "colour", "kind", "year", "zip")
    assert data.n_rows == 100
    assert data.mapper.spec_.is_categorical.tolist() == [False, False, True, True, False, True]
    assert data.mapper.categories_[5] == ["01234", "56789"]


def test_invalid_input_raises(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no Parquet file at"):
        Dataset.from_parquet(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="list of Parquet files is empty"):
        Dataset.from_parquet([])
    with pytest.raises(
        ValueError, match="There is no column 'price'; the columns are id, x, count"
    ):
        Dataset.from_parquet(folder, "price")
    with pytest.raises(ValueError, match=r"_notes.parquet is not a readable Parquet or Arrow file"):
        Dataset.from_parquet(folder / "_notes.parquet")
