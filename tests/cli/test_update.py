"""The commands `calibrate`, `refit` and `export`, names of options, and Excel files."""

import json

import numpy as np
import pandas as pd
import pytest
from support.commands import fails, polyleaf

from polyleaf import PolyleafRegressor, load_model

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    table = pd.DataFrame(RNG.standard_normal((300, 3)), columns=["area", "age", "floor"])
    table["price"] = 3 * table["area"] + RNG.standard_normal(300)
    table["rent"] = table["age"] + 0.1 * RNG.standard_normal(300)
    table["sold"] = np.where(table["price"] > 0, "yes", "no")
    for name, begin, end in (("train", 0, 150), ("held", 150, 250), ("new", 250, 300)):
        table[begin:end].to_csv(folder / f"{name}.csv", index=False)
    train = f"train {folder}/train.csv"
    polyleaf(f"{train} -t price,rent --drop sold -m {folder}/m --n-estimators 10")
    polyleaf(f"{train} -t sold --drop price,rent -m {folder}/c --max-leaves 4 -n 5")
    return folder


def read(path):
    return pd.read_csv(path, float_precision="round_trip")


def test_calibrate_adds_intervals_and_sets(folder, capsys):
    message = fails(capsys, f"predict {folder}/new.csv -m {folder}/m --intervals")
    assert "run polyleaf calibrate" in message
    polyleaf(f"calibrate {folder}/held.csv -m {folder}/m --coverage 0.8 -o {folder}/calibrated")
    assert "100 rows for a coverage of 0.8" in capsys.readouterr().err
    polyleaf(f"predict {folder}/new.csv -m {folder}/calibrated --intervals -o {folder}/p.csv")
    assert f"50 predictions written to {folder}/p.csv" in capsys.readouterr().err
    held = read(folder / "held.csv")
    model = load_model(folder / "m")
    model.calibrate(held[["area", "age", "floor"]], held[["price", "rent"]], coverage=0.8)
    bounds = model.predict_interval(read(folder / "new.csv")[["area", "age", "floor"]])
    found = read(folder / "p.csv")[["price_low", "price_high", "rent_low", "rent_high"]]
    np.testing.assert_array_equal(found.to_numpy().reshape(50, 2, 2), bounds)
    polyleaf(f"calibrate {folder}/held.csv -m {folder}/c --output {folder}/sets")
    polyleaf(f"predict {folder}/new.csv -m {folder}/sets --intervals --output {folder}/s.csv")
    assert {"set_no", "set_yes"} <= set(read(folder / "s.csv"))


def test_refit_equals_the_estimator(folder, capsys):
    polyleaf(f"refit {folder}/held.csv -m {folder}/m --decay-rate 0.5 -o {folder}/refitted")
    assert "refitted on 100 rows" in capsys.readouterr().err
    held, new = read(folder / "held.csv"), read(folder / "new.csv")
    features = ["area", "age", "floor"]
    model = load_model(folder / "m").refit(held[features], held[["price", "rent"]], decay_rate=0.5)
    refitted = load_model(folder / "refitted")
    np.testing.assert_array_equal(refitted.predict(new[features]), model.predict(new[features]))


@pytest.mark.parametrize(
    ("file", "package", "start"),
    [
        ("m.h", None, b"/*"),
        ("m.json", None, b"{"),
        ("m.onnx", "onnx", b""),
        ("m.treelite", "treelite", b""),
    ],
)
def test_export(folder, capsys, file, package, start):
    if package:
        pytest.importorskip(package)
    polyleaf(f"export {folder}/m {folder}/{file}")
    content = (folder / file).read_bytes()
    assert content.startswith(start) and len(content) > 100
    assert f"{file} written, {len(content):,} bytes" in capsys.readouterr().err
    assert "must end in .onnx, .h" in fails(capsys, f"export {folder}/m {folder}/m.xyz")


def test_names_of_python_and_near_misses(folder, capsys):
    train = f"train {folder}/train.csv -t price -m {folder}/x"
    for option, hint in (
        ("--subsample 0.5", "--subsample is not an option of train: use --set subsample=VALUE"),
        ("--num-iterations 5", "use --rounds"),
        ("--modle m", "did you mean --model?"),
        ("--drpo id", "did you mean --drop?"),
    ):
        assert hint in fails(capsys, f"{train} {option}")
    assert "not an option" not in fails(capsys, f"{train} --random-state x")
    assert "use --task classification" in fails(capsys, f"{train} --objective softmax")
    polyleaf("train --help")
    text = " ".join(capsys.readouterr().out.split())
    assert "training:" in text and "Default: 0.1; 0.05 for counts and distributions." in text
    assert "at most 3,000" in text and "int in" not in text and "or None" not in text


def test_train_lists_its_features(folder, capsys):
    polyleaf(f"train {folder}/train.csv -t price -m {folder}/x -n 2")
    assert "features: area, age, floor, rent, sold" in capsys.readouterr().err


def test_each_target_comes_before_all(folder, capsys):
    polyleaf(f"evaluate {folder}/held.csv -m {folder}/m")
    out = capsys.readouterr().out
    assert out.index("price ") < out.index("rent ") < out.index("all targets")
    assert "(the mean RMSE of the targets)" in out


def test_excel(folder, capsys, tmp_path):
    pytest.importorskip("openpyxl")
    for name in ("train", "new"):
        table = read(folder / f"{name}.csv")
        table["code"] = [f"{i % 3:03d}" for i in range(len(table))]
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        table.to_excel(tmp_path / f"{name}.xlsx", index=False)
    for end in ("csv", "xlsx"):
        polyleaf(f"train {tmp_path}/train.{end} -t price -m {tmp_path}/{end} -n 5")
        polyleaf(f"predict {tmp_path}/new.{end} -m {tmp_path}/{end} -o {tmp_path}/{end}.p.csv")
    assert (tmp_path / "csv.p.csv").read_text() == (tmp_path / "xlsx.p.csv").read_text()


def test_excel_without_its_reader(folder, capsys, monkeypatch, tmp_path):
    (tmp_path / "x.xlsx").write_bytes(b"PK\x03\x04")

    def fail(*args, **kwargs):
        raise ImportError("no openpyxl")

    monkeypatch.setattr(pd, "read_excel", fail)
    message = fails(capsys, f"train {tmp_path}/x.xlsx -t a -m {tmp_path}/m")
    assert "pip install pandas openpyxl" in message and "save the sheet as CSV" in message


def test_models_that_start_from_a_linear_model_equal_the_estimator(folder, capsys):
    train = f"train {folder}/train.csv -t price --drop rent -n 5 --set init=auto"
    polyleaf(f"{train} -m {folder}/i --validation {folder}/held.csv")
    polyleaf(f"predict {folder}/new.csv -m {folder}/i -o {folder}/i.csv")
    polyleaf(f"evaluate {folder}/new.csv -m {folder}/i")
    assert "R2" in capsys.readouterr().out
    columns = ["area", "age", "floor", "sold"]
    rows, new = read(folder / "train.csv"), read(folder / "new.csv")
    model = PolyleafRegressor(n_estimators=5, init="auto").fit(rows[columns], rows["price"])
    np.testing.assert_array_equal(read(folder / "i.csv")["price"], model.predict(new[columns]))
    polyleaf(f"refit {folder}/held.csv -m {folder}/i -o {folder}/i2")
    polyleaf(f"explain {folder}/new.csv -m {folder}/i -o {folder}/e.csv")
    # Contributions of up to 5 add up to predictions near 0.
    np.testing.assert_allclose(
        read(folder / "e.csv")["raw_score"], model.predict(new[columns]), rtol=1e-6, atol=1e-7
    )


def test_linear_models_with_offsets_equal_the_estimator(folder, capsys):
    train = f"train {folder}/train.csv -t price -n 5 --set init=linear --offset rent"
    polyleaf(f"{train} -m {folder}/o --validation {folder}/held.csv")
    columns, numbers = ["area", "age", "floor", "sold"], read(folder / "train.csv")
    model = PolyleafRegressor(n_estimators=5, init="linear")
    model.fit(numbers[columns], numbers["price"], offset=numbers["rent"])
    new, held = read(folder / "new.csv"), read(folder / "held.csv")
    polyleaf(f"predict {folder}/new.csv -m {folder}/o -o {folder}/o.csv")
    expected = model.predict(new[columns], offset=new["rent"])
    np.testing.assert_array_equal(read(folder / "o.csv")["price"], expected)
    polyleaf(f"calibrate {folder}/held.csv -m {folder}/o")
    polyleaf(f"predict {folder}/new.csv -m {folder}/o -o {folder}/o.csv --intervals")
    model.calibrate(held[columns], held["price"], coverage=0.9, offset=held["rent"])
    bounds = model.predict_interval(new[columns], offset=new["rent"])
    np.testing.assert_allclose(read(folder / "o.csv")["price_high"], bounds[:, 1], rtol=1e-12)
    polyleaf(f"refit {folder}/held.csv -m {folder}/o -o {folder}/o2")
    polyleaf(f"predict {folder}/new.csv -m {folder}/o2 -o {folder}/o2.csv")
    model.refit(held[columns], held["price"], offset=held["rent"])
    expected = model.predict(new[columns], offset=new["rent"])
    np.testing.assert_allclose(read(folder / "o2.csv")["price"], expected, rtol=1e-12)
    polyleaf(f"evaluate {folder}/new.csv -m {folder}/o --json")
    assert json.loads(capsys.readouterr().out)["R2"] > 0.5


@pytest.mark.parametrize("name", ["rows.svm", "parts"])
def test_linear_models_need_a_dense_file(name, tmp_path, capsys):
    (tmp_path / "rows.svm").write_text("1 1:2 2:3\n0 2:1\n" * 20)
    (tmp_path / "parts").mkdir()
    table = pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40.0)})
    table.to_parquet(tmp_path / "parts/part.parquet")
    target = "-t y" if name == "parts" else ""
    train = f"train {tmp_path}/{name} {target} --set init=linear -m {tmp_path}/m"
    assert "init reads features, but" in fails(capsys, train)
