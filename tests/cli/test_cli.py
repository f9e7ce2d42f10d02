"""The commands on all file formats, and their errors."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from support.commands import fails, polyleaf
from support.small_fits import bits

from polyleaf import (
    PolyleafClassifier,
    PolyleafClassifierCV,
    PolyleafRegressor,
    __version__,
    datasets,
    load_model,
)
from polyleaf.settings import presets

FAST = "--rounds 20 --learning-rate 0.3"


def write_csv(path, names, columns):
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        cells = (np.asarray(column).astype(str).tolist() for column in columns)
        writer.writerows(zip(*cells, strict=True))
    return path


def evaluate(capsys, file, model):
    """Return the scores that `evaluate --json` prints."""
    capsys.readouterr()
    polyleaf(f"evaluate {file} -m {model} --json")
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Energy and letters as training and test files, with a model for each."""
    folder = tmp_path_factory.mktemp("cli")
    for name, rows in (("energy", None), ("letter", 1500)):
        small = datasets.load(name)
        targets = small.output_names if name == "energy" else ("letter",)
        for part in ("train", "test"):
            index = getattr(small, part)[:rows]
            columns = [*small.X[index].T, *np.atleast_2d(small.y[index].T)]
            write_csv(folder / f"{name}_{part}.csv", [*small.feature_names, *targets], columns)
    polyleaf(f"train {folder}/energy_train.csv -t *_load -m {folder}/energy.polyleaf {FAST}")
    polyleaf(f"train {folder}/letter_train.csv -t letter -m {folder}/letter.polyleaf {FAST}")
    return folder


def test_help_and_version(capsys):
    for command in ("", "--help", "train --help", "inspect --help"):
        polyleaf(command)
        assert "Examples" in capsys.readouterr().out
    polyleaf("--version")
    assert capsys.readouterr().out.strip() == __version__


def test_regression_equals_the_estimator(folder, capsys):
    energy = datasets.load("energy")
    X, X_test, y, y_test = energy.split()
    # The numbers as written in the file.
    y, y_test = (numbers.astype(str).astype(float) for numbers in (y, y_test))
    model = PolyleafRegressor(n_estimators=20, learning_rate=0.3, random_state=0)
    expected = model.fit(X, y).predict(X_test)

    polyleaf(f"predict {folder}/energy_test.csv -m {folder}/energy.polyleaf -o {folder}/p.csv")
    predicted = pd.read_csv(folder / "p.csv", float_precision="round_trip")
    assert tuple(predicted) == energy.output_names
    np.testing.assert_array_equal(predicted.to_numpy(), expected)

    scores = evaluate(capsys, f"{folder}/energy_test.csv", f"{folder}/energy.polyleaf")
    assert scores["RMSE"] == pytest.approx(np.sqrt(((expected - y_test) ** 2).mean()))
    assert scores["R2"] > 0.9


def test_undefined_score_is_null_in_json(folder, tmp_path, capsys):
    with open(folder / "energy_test.csv", encoding="utf-8") as stream:
        header, row = list(csv.reader(stream))[:2]
    write_csv(tmp_path / "one.csv", header, [[cell] for cell in row])
    assert evaluate(capsys, f"{tmp_path}/one.csv", f"{folder}/energy.polyleaf")["R2"] is None


def test_predicted_classes_have_names(folder, capsys):
    polyleaf(f"predict {folder}/letter_test.csv -m {folder}/letter.polyleaf --proba")
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    letter = datasets.load("letter")
    assert list(rows[0]) == ["letter", *(f"proba_{name}" for name in letter.output_names)]
    for row in rows[:50]:
        probabilities = {name: float(row[f"proba_{name}"]) for name in letter.output_names}
        assert max(probabilities, key=probabilities.get) == row["letter"]
        assert sum(probabilities.values()) == pytest.approx(1)
    polyleaf(f"evaluate {folder}/letter_test.csv -m {folder}/letter.polyleaf")
    accuracy = np.mean([row["letter"] for row in rows] == letter.y[letter.test[:1500]])
    assert f"accuracy  {accuracy:.6g}" in capsys.readouterr().out


def test_columns_are_matched_by_name(folder, tmp_path):
    with open(folder / "energy_test.csv", encoding="utf-8") as stream:
        rows = [[*row[::-1], "7"] for row in csv.reader(stream)]
    rows[0][-1] = "more"
    write_csv(tmp_path / "t.csv", rows[0], list(zip(*rows[1:], strict=True)))
    for file, out in ((folder / "energy_test.csv", "a.csv"), (tmp_path / "t.csv", "b.csv")):
        polyleaf(f"predict {file} -m {folder}/energy.polyleaf -o {tmp_path}/{out}")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_quiet(folder, tmp_path, capfd):
    train = f"train {folder}/energy_train.csv -t *_load -m {tmp_path}/m --rounds 3"
    polyleaf(f"{train} --quiet")
    polyleaf(f"predict {folder}/energy_test.csv -m {tmp_path}/m -o {tmp_path}/p.csv --quiet")
    assert capfd.readouterr() == ("", "")


def test_time_limit_stops_training(folder, tmp_path, capsys):
    train = f"train {folder}/energy_train.csv -t *_load -m {tmp_path}/m"
    polyleaf(f"{train} --time-limit 1e-9")  # too short for a round, but one is always trained
    assert load_model(tmp_path / "m").n_iter_ == 1
    assert "--time-limit must be" in fails(capsys, f"{train} --time-limit 0")
    message = fails(capsys, f"{train} --time-limit 1 --search 1")
    assert "--time-limit cannot be combined with --search" in message


def test_parquet_input_and_output(folder, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.csv as pa_csv
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    for part in ("train", "test"):
        pq.write_table(pa_csv.read_csv(folder / f"energy_{part}.csv"), tmp_path / f"{part}.parquet")
    feather.write_feather(pq.read_table(tmp_path / "test.parquet"), str(tmp_path / "test.arrow"))
    polyleaf(f"train {tmp_path}/train.parquet -t last:2 -m {tmp_path}/m {FAST}")
    polyleaf(f"predict {tmp_path}/test.arrow -m {tmp_path}/m -o {tmp_path}/p.parquet")
    polyleaf(f"predict {folder}/energy_test.csv -m {folder}/energy.polyleaf -o {tmp_path}/p.csv")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.field(0).type == pa.float64()
    as_text, as_table = pd.read_csv(tmp_path / "p.csv"), pd.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_allclose(as_table, as_text)


def test_arff_labels(tmp_path, capsys):
    emotions = datasets.load("emotions")
    for part in ("train", "test"):
        rows = getattr(emotions, part)
        lines = ["@relation emotions"]
        lines += [f"@attribute {name} numeric" for name in emotions.feature_names]
        lines += [f"@attribute {name} {{0,1}}" for name in emotions.output_names]
        cells = [*emotions.X[rows].astype(str).T.tolist(), *emotions.y[rows].astype(str).T.tolist()]
        lines += ["@data", *map(",".join, zip(*cells, strict=True))]
        (tmp_path / f"{part}.arff").write_text("\n".join(lines))
    polyleaf(f"train {tmp_path}/train.arff -t last:6 -m {tmp_path}/m {FAST}")
    assert evaluate(capsys, f"{tmp_path}/test.arff", f"{tmp_path}/m")["micro F1"] > 0.5
    polyleaf(f"predict {tmp_path}/test.arff -m {tmp_path}/m --proba -o {tmp_path}/p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv", float_precision="round_trip")
    names = emotions.output_names
    assert list(predicted) == [*names, *(f"proba_{name}" for name in names)]
    np.testing.assert_array_equal(predicted.to_numpy()[:, :6], predicted.to_numpy()[:, 6:] > 0.5)


def libsvm(path, X, label_of_row):
    lines = []
    for row, label in zip(X, label_of_row, strict=True):
        entries = (f"{i + 1}:{value:.9g}" for i, value in enumerate(row) if value)
        lines.append(" ".join([str(label), *entries]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_libsvm(tmp_path, capsys):
    X, X_test, y, y_test = datasets.load("letter").split()
    numbers, numbers_test = ([ord(label) for label in labels] for labels in (y[:1500], y_test))
    libsvm(tmp_path / "train.svm", X[:1500], numbers)
    libsvm(tmp_path / "test.svm", X_test, numbers_test)
    polyleaf(f"train {tmp_path}/train.svm -m {tmp_path}/m --task classification {FAST}")
    accuracy = evaluate(capsys, f"{tmp_path}/test.svm", f"{tmp_path}/m")["accuracy"]
    model = PolyleafClassifier(n_estimators=20, learning_rate=0.3, random_state=0)
    expected = model.fit(X[:1500], y[:1500]).score(X_test, y_test)
    assert accuracy == pytest.approx(expected)


def test_libsvm_labels(tmp_path, capsys):
    X, X_test, Y, Y_test = datasets.load("emotions").split()
    for name, features, labels in (("train.svm", X, Y), ("test.svm", X_test, Y_test)):
        of_rows = [",".join(map(str, np.flatnonzero(row))) for row in labels]
        libsvm(tmp_path / name, features, of_rows)
    polyleaf(f"train {tmp_path}/train.svm -m {tmp_path}/m {FAST}")
    assert evaluate(capsys, f"{tmp_path}/test.svm", f"{tmp_path}/m")["micro F1"] > 0.5


def test_categories_weights_dropped_columns_and_missing_values(tmp_path, capsys):
    rng = np.random.default_rng(0)
    colours = np.array(["red", "blue", "green", "white", "black", "pink"])
    code = rng.integers(6, size=400)
    columns = {
        "id": np.arange(400),
        "colour": np.where(rng.random(400) < 0.05, "", colours[code]),
        "shape": code % 2 + 10,
        "x": np.where(rng.random(400) < 0.1, "NA", rng.normal(size=400).round(3).astype(str)),
        "w": np.where(code < 3, 1.0, 0.5),
        "price": np.array([0.5, 9.25, 3.5, 7.5, 1.5, 5.5])[code],
    }
    write_csv(tmp_path / "t.csv", columns, columns.values())
    options = "--drop id --weight w --categorical shape --set min_child_samples=5"
    polyleaf(f"train {tmp_path}/t.csv -t price -m {tmp_path}/m {options} {FAST}")
    columns = [[10, 10, 11], ["", 1, 2], ["red", "green", "unseen"]]
    write_csv(tmp_path / "new.csv", ["shape", "x", "colour"], columns)
    polyleaf(f"predict {tmp_path}/new.csv -m {tmp_path}/m")
    rows = csv.DictReader(capsys.readouterr().out.splitlines())
    red, green, _ = (float(row["price"]) for row in rows)
    # 20 rounds of rate 0.3 leave a share of 0.7^20, some thousandths; penalties a little more.
    assert red == pytest.approx(0.5, abs=0.02) and green == pytest.approx(3.5, abs=0.02)
    polyleaf(f"inspect {tmp_path}/m")
    shown = capsys.readouterr().out
    assert "colour" in shown and "id" not in shown.split()
    polyleaf(f"inspect {tmp_path}/m --tree 0")
    assert "colour in {" in capsys.readouterr().out


def test_validation_and_early_stopping(folder, tmp_path):
    train = f"train {folder}/energy_train.csv -t *_load --early-stopping 3 -r 0.5"
    for validation, model in ((folder / "energy_test.csv", "a"), ("0.25", "b")):
        polyleaf(f"{train} --validation {validation} -m {tmp_path}/{model} --rounds 2000")
        assert load_model(tmp_path / model).best_iteration_ < 1999


def test_monotone_constraints_by_column_names(folder, tmp_path):
    train = f"train {folder}/energy_train.csv -t *_load -m {tmp_path}/m {FAST}"
    polyleaf(train, "--set", 'monotone_constraints={"glazing_area": {"cooling_load": -1}}')
    model = load_model(tmp_path / "m")
    X = np.repeat(datasets.load("energy").split()[0], 2, axis=0)
    X[1::2, 6] += 0.1
    scores = model.predict_raw(X)
    assert np.all(scores[::2, 1] >= scores[1::2, 1]) and np.any(scores[::2, 0] < scores[1::2, 0])


def test_output_groups_by_names_of_targets(folder, tmp_path):
    train = f"train {folder}/energy_train.csv -t *_load -m {tmp_path}/m {FAST}"
    polyleaf(train, "--set", 'output_groups=[["cooling_load"],["heating_load"]]')
    assert load_model(tmp_path / "m").output_groups_ == [[0], [1]]


def test_numbers_with_separators_and_units_raise(tmp_path, capsys):
    x = np.random.default_rng(0).random(60).round(4) + 1
    columns = {"x": x, "y": (2 * x).round(4), "z": np.arange(60)}
    comma = tmp_path / "comma.csv"
    rows = zip(*(column.astype(str).tolist() for column in columns.values()), strict=True)
    text = "\n".join([";".join(columns), *(";".join(row).replace(".", ",") for row in rows)]) + "\n"
    comma.write_text(text)
    train = f"train {comma} -m {tmp_path}/m --rounds 2"
    for options in ("-t y", "-t y,z", "--task y", "-t y --task regression"):
        message = fails(capsys, f"{train} {options}")
        assert "Column 'y' holds" in message and "in row 0" in message and "--decimal" in message
    assert "Column 'x' holds" in fails(capsys, f"{train} -t z --weight x")
    message = fails(capsys, f"{train} -t z")
    assert "Column 'x' of X holds numbers with separators as text: row 0 holds" in message
    assert "--decimal" in message and "--categorical 'x'" in message
    polyleaf(f"{train} -t z --categorical x,y")
    polyleaf(f"{train} -t z --decimal ,")
    capsys.readouterr()
    polyleaf(f"predict {comma} -m {tmp_path}/m")  # the model stores the decimal mark
    right = capsys.readouterr().out
    (tmp_path / "point.csv").write_text(text.replace(",", ".").replace(";", ","))
    message = fails(capsys, f"predict {tmp_path}/point.csv -m {tmp_path}/m")
    assert "Column 'x' holds" in message and "in row 0, which is not a number" in message
    polyleaf(f"predict {tmp_path}/point.csv -m {tmp_path}/m --decimal .")
    assert capsys.readouterr().out == right
    polyleaf(f"{train} -t y --decimal ,")
    (tmp_path / "classes.csv").write_text("x;y\n" + "".join(f"{i};{i % 2},5\n" for i in range(60)))
    classes = f"train {tmp_path}/classes.csv -t y -m {tmp_path}/m --rounds 2"
    assert "--task classification" in fails(capsys, classes)
    polyleaf(f"{classes} --task classification")


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        ("?", "if '?' is a missing value, use --na-values '?'"),
        ("2024-01-31", "Replace the dates by numbers"),
        ("5 %", "Write the cells of the file as plain numbers"),
    ],
)
def test_text_in_place_of_numbers_names_a_remedy(tmp_path, capsys, cell, remedy):
    cells = [cell] + [f"{i}.5" if cell == "?" else cell.replace("5", "6") for i in range(59)]
    rows = [f"{text},{i}" for i, text in enumerate(cells)]
    (tmp_path / "x.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    message = fails(capsys, f"train {tmp_path}/x.csv -t y -m {tmp_path}/m --rounds 2")
    assert remedy in message and "--drop 'x' leaves the column out" in message


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("abc", "Column 'w' holds 'a' in row 0, which is not a number"),
        (["1", "", "NA"], "Column 'w' has no weight in row 1 and 39 more rows"),
        (["1", "2", "-1"], "Column 'w' has negative weights in row 2 and 19 more rows"),
        (["1", "inf", "2"], "Column 'w' has no weight in row 1 and 19 more rows"),
    ],
)
@pytest.mark.parametrize("in_folder", [False, True])
def test_weights_are_finite_numbers(cells, message, in_folder, tmp_path, capsys):
    x = np.linspace(0, 1, 60)
    table = write_csv(tmp_path / "t.csv", ["x", "w", "y"], [x, np.tile(list(cells), 20), 3 * x])
    if in_folder:
        pa_csv, pq = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
        (tmp_path / "rows").mkdir()
        pq.write_table(pa_csv.read_csv(table), tmp_path / "rows" / "t.parquet")
        table = tmp_path / "rows"
    model = tmp_path / "m"
    train = f"train {table} -t y --task regression -m {model}"
    assert message in fails(capsys, f"{train} --weight w")
    assert not model.exists()
    polyleaf(f"{train} --drop w --rounds 2")
    assert message in fails(capsys, f"evaluate {table} -m {model} --weight w")


def test_target_cannot_be_the_offset(folder, tmp_path, capsys):
    train = f"train {folder}/energy_train.csv -m {tmp_path}/m"
    message = fails(capsys, f"{train} -t heating_load --offset heating_load")
    assert "--offset: column 'heating_load' is a target" in message
    message = fails(capsys, f"{train} -t heating_load --set callbacks=f()")
    assert message.strip().endswith(
        "--set callbacks=f(): callbacks takes an object: set it in Python."
    )


def test_offset_columns_are_stored_in_the_model(tmp_path, capsys):
    rng = np.random.default_rng(0)
    exposure = rng.uniform(0.1, 2.0, 400).round(3)
    x = rng.normal(size=400).round(3)
    names = ["x", "log_exposure", "claims"]
    columns = x, np.log(exposure).round(4), rng.poisson(exposure * np.exp(x))
    train = write_csv(tmp_path / "train.csv", names, columns)
    options = f"-t claims --task regression --objective poisson -m {tmp_path}/m"
    polyleaf(f"train {train} {options} --offset log_exposure --validation 0.2 {FAST}")
    model = load_model(tmp_path / "m")
    assert model.n_features_in_ == 1
    polyleaf(f"predict {train} -m {tmp_path}/m -o {tmp_path}/p.csv")
    expected = model.predict(columns[0][:, None], offset=columns[1])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["claims"], expected)
    error = evaluate(capsys, train, f"{tmp_path}/m")["RMSE"]
    assert error == pytest.approx(np.sqrt(np.mean((expected - columns[2]) ** 2)))

    without = write_csv(tmp_path / "without.csv", ["x"], [x])
    assert "has no column 'log_exposure'" in fails(capsys, f"predict {without} -m {tmp_path}/m")
    offsets = ["", *columns[1][1:].astype(str)]
    gap = write_csv(tmp_path / "gap.csv", ["x", "log_exposure"], [x, offsets])
    message = fails(capsys, f"predict {gap} -m {tmp_path}/m")
    assert "'log_exposure' has no offset in row 0" in message
    polyleaf(f"explain {without} -m {tmp_path}/m -o {tmp_path}/c.csv")
    wide = write_csv(tmp_path / "wide.csv", ["z", *names], [x, *columns])
    message = fails(capsys, f"train {wide} {options} --offset x,log_exposure")
    assert "must have shape (400,) or (400, 1)" in message


def test_calibrated_intervals_and_sets(folder, tmp_path, capsys):
    for name in ("energy", "letter"):
        model, test = tmp_path / name, folder / f"{name}_test.csv"
        model.write_bytes((folder / f"{name}.polyleaf").read_bytes())
        assert "calibrate" in fails(capsys, f"predict {test} -m {model} --intervals")
        estimator, frame = load_model(model), pd.read_csv(test)
        targets = ["letter"] if name == "letter" else ["heating_load", "cooling_load"]
        y = frame[targets[0]] if name == "letter" else frame[targets]
        joint = {"joint": True} if name == "energy" else {}
        estimator.calibrate(frame.drop(columns=targets), y, coverage=0.8, **joint)
        estimator.save_model(model)
        polyleaf(f"predict {test} -m {model} --intervals -o {tmp_path}/{name}.csv")
    table, truth = pd.read_csv(tmp_path / "energy.csv"), pd.read_csv(folder / "energy_test.csv")
    targets = datasets.load("energy").output_names
    ends = [f"{target}_{end}" for target in targets for end in ("low", "high")]
    assert list(table) == [*targets, *ends]
    inside = [(table[f"{t}_low"] <= truth[t]) & (truth[t] <= table[f"{t}_high"]) for t in targets]
    assert 0.8 <= np.mean(np.all(inside, axis=0)) < 0.87  # on the calibration rows
    sets, truth = pd.read_csv(tmp_path / "letter.csv"), pd.read_csv(folder / "letter_test.csv")
    held = [sets[f"set_{letter}"][i] for i, letter in enumerate(truth["letter"])]
    assert 0.8 <= np.mean(held) < 0.9


def test_quantiles(folder, tmp_path, capsys):
    train = f"train {folder}/energy_train.csv -t *_load -m {tmp_path}/m --objective quantile"
    polyleaf(f"{train} --set 'quantile_alpha=[0.1, 0.9]' {FAST}")
    polyleaf(f"predict {folder}/energy_test.csv -m {tmp_path}/m -o {tmp_path}/p.csv")
    names = ("heating_load_q0.1", "heating_load_q0.9", "cooling_load_q0.1", "cooling_load_q0.9")
    assert tuple(pd.read_csv(tmp_path / "p.csv")) == names
    scores = evaluate(capsys, f"{folder}/energy_test.csv", f"{tmp_path}/m")
    assert 0 < scores["share below q0.1"] < 0.4 < scores["share below q0.9"] <= 1


def test_distributions(folder, tmp_path, capsys):
    energy, model = folder / "energy_test.csv", tmp_path / "m"
    train = f"train {folder}/energy_train.csv -t *_load -m {model} --rounds 40"
    polyleaf(f"{train} --objective normal")
    polyleaf(f"predict {energy} -m {model} -o {tmp_path}/p.csv --levels 0.05,0.95")
    table = pd.read_csv(tmp_path / "p.csv", float_precision="round_trip")
    targets = ("heating_load", "cooling_load")
    quantiles = (f"{target}_q{level}" for target in targets for level in (0.05, 0.95))
    assert tuple(table) == (*targets, *quantiles)
    _, X_test, _, y = datasets.load("energy").split()
    distribution = load_model(model).predict_dist(X_test)
    np.testing.assert_allclose(table["cooling_load_q0.95"], distribution.ppf(0.95)[:, 1], rtol=1e-6)
    scores = evaluate(capsys, energy, model)
    assert scores["NLL"] == pytest.approx(-distribution.logpdf(y).mean(), rel=1e-5)
    assert scores["CRPS"] == pytest.approx(distribution.crps(y).mean(), rel=1e-5)
    expected = -distribution.logpdf(y)[:, 0].mean()
    assert scores["targets"]["heating_load"]["NLL"] == pytest.approx(expected, rel=1e-5)
    assert 0.5 < scores["share in 90 %"] <= 1


def test_levels_need_distributions(folder, tmp_path, capsys):
    energy, model = folder / "energy_test.csv", tmp_path / "m"
    message = fails(capsys, f"predict {energy} -m {folder}/energy.polyleaf --levels 0.5")
    assert "--levels needs a model that predicts distributions" in message
    train = f"train {folder}/energy_train.csv -t heating_load -m {model} --rounds 2"
    polyleaf(f"{train} --objective normal --drop cooling_load")
    for levels in ("0", "0.5,x", "1.5", ""):
        message = fails(capsys, f"predict {energy} -m {model} --levels '{levels}'")
        assert "--levels must be numbers between 0 and 1" in message


def test_model_without_probabilities(folder, tmp_path, capsys):
    train = f"train {folder}/letter_train.csv -t letter -m {tmp_path}/m {FAST}"
    polyleaf(f"{train} --objective squared_hinge")
    test = f"{folder}/letter_test.csv"
    assert "no probabilities" in fails(capsys, f"predict {test} -m {tmp_path}/m --proba")
    assert set(evaluate(capsys, test, f"{tmp_path}/m")) == {"accuracy", "macro F1"}


def test_inspect_json(folder, capsys):
    polyleaf(f"inspect {folder}/energy.polyleaf --json")
    dumped = json.loads(capsys.readouterr().out)
    assert dumped["feature_names"][0] == "relative_compactness" and len(dumped["trees"]) == 20
    assert dumped["output_names"] == ["heating_load", "cooling_load"]
    polyleaf(f"inspect {folder}/energy.polyleaf --tree 19")
    assert "leaf 0: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train {energy} -m {out}", "--target is required"),
        ("train {energy} -m {out} -t price", "no column 'price'"),
        ("train {energy} -m {out} -t *_load --set leafs=3", "no parameter 'leafs'"),
        ("train {energy} -m {out} -t *_load --set num_leaves=3", "did you mean max_leaves?"),
        ("train {energy} -m {out} -t *_load --set n_candidates=3", "n_candidates needs --search"),
        ("train {energy} -m {out} -t *_load --set leafs", "NAME=VALUE"),
        ("train {energy} -m {out} -t *_load --early-stopping 3", "stopping needs --validation"),
        ("train {energy} -m {out} -t *_load --validation 1.5", "no row"),
        ("train {energy} -m {out} -t *_load -r -1", "--learning-rate"),
        ("train {energy} -m {out} -t *_load --objective nonsense", "objective"),
        ("train {energy} -m {out} -t *_load --task x", "one of regression"),
        ("train {energy} -m {out} -t *_load --preset tfbtt", "there is no preset 'tfbtt'"),
        ("train {energy} -m {out} -t *_load --preset samme", "for classes"),
        ("train {energy} -m {out} -t *_load --linear-fit line", "--linear-fit"),
        ("train {energy} -m {out} -t *_load --set rows_per_layer=[0.5]", "boosting_step=layer"),
        ("train {energy} -m {out}/absent/m -t *_load", "its folder does not exist"),
        ("trian", "invalid choice: 'trian'"),
        ("predict {letter} -m {model}", "no column"),
        ("predict {energy} -m {model} --proba", "--proba"),
        ("predict {energy} -m {model} -o {out}.xlsx", "use .csv, .parquet"),
        ("predict {energy} -m {model} -o {out}/p.csv", "its folder does not exist"),
        ("explain {energy} -m {model} -o {out}/p.csv", "its folder does not exist"),
        ("predict {energy} -m {out}", "no model file"),
        ("inspect {energy}", "energy_train.csv"),
        ("inspect {model} --tree 20", "the model has 20, counted from 0"),
    ],
)
def test_errors(folder, tmp_path, capsys, command, message):
    files = {"energy": folder / "energy_train.csv", "letter": folder / "letter_test.csv"}
    command = command.format(**files, model=folder / "energy.polyleaf", out=tmp_path / "m")
    assert message in fails(capsys, command)
    assert not (tmp_path / "m").exists()


def test_model_trained_in_python_has_no_columns(tmp_path, folder, capsys):
    X, _, y, _ = datasets.load("energy").split()
    PolyleafRegressor(n_estimators=2).fit(X, y).save_model(tmp_path / "m")
    assert "use it in Python" in fails(capsys, f"predict {folder}/energy_test.csv -m {tmp_path}/m")
    polyleaf(f"inspect {tmp_path}/m")
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ("--preset tfbt", presets.tfbt()),
        ("--preset tfbt_full --depth 3", presets.tfbt_full() | {"max_depth": 3}),
        ("--preset cgb --set min_child_samples=5", presets.cgb() | {"min_child_samples": 5}),
        (
            "--preset gbdt_so --set boosting_step=tree",
            presets.gbdt_so() | {"boosting_step": "tree"},
        ),
        (
            "--set hessian=block --set block_size=3 --set pruning=post",
            {"hessian": "block", "block_size": 3, "pruning": "post"},
        ),
        (
            "--leaf linear --linear-fit full --set linear_features=2",
            {"leaf": "linear", "linear_fit": "full", "linear_features": 2},
        ),
        (
            "--preset tfbt --set 'rows_per_layer=[0.25, 0.5, 1.0]'",
            presets.tfbt() | {"rows_per_layer": [0.25, 0.5, 1.0]},
        ),
    ],
)
def test_presets_and_settings_reach_the_estimator(folder, tmp_path, options, parameters):
    file = folder / "letter_train.csv"
    polyleaf(f"train {file} -t letter -m {tmp_path}/m --rounds 3 {options}")
    estimator = load_model(tmp_path / "m")
    letter = datasets.load("letter")
    X, y = letter.X[letter.train[:1500]], letter.y[letter.train[:1500]]
    arguments = {**parameters, "n_estimators": 3, "random_state": 0}
    expected = PolyleafClassifier(**arguments).fit(X, y)
    assert bits(estimator) == bits(expected)


SEARCH = "--search 100000 --set n_candidates=3 -n 12 --threads 1"  # the time limit is not reached


def test_search_trains_the_best_and_reports_trials(folder, tmp_path, capsys):
    polyleaf(f"train {folder}/letter_train.csv -t letter -m {tmp_path}/m {SEARCH}")
    printed = capsys.readouterr().err
    assert "mlogloss" in printed and "learning_rate=0.05" in printed
    letter = datasets.load("letter")
    X, y = letter.X[letter.train[:1500]], letter.y[letter.train[:1500]]
    again = PolyleafClassifierCV(n_candidates=3, n_estimators=12, n_jobs=1, random_state=0)
    expected = again.fit(X, y).predict_raw(X)
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict_raw(X), expected)


def test_search_on_validation_data(folder, tmp_path, capsys):
    held_out = f"--validation {folder}/energy_test.csv"
    polyleaf(f"train {folder}/energy_train.csv -t *_load -m {tmp_path}/m {SEARCH} {held_out}")
    assert "relative_rmse" in capsys.readouterr().err
    assert isinstance(load_model(tmp_path / "m"), PolyleafRegressor)


def test_linear_leaves(folder, tmp_path, capsys):
    file, test = folder / "energy_train.csv", folder / "energy_test.csv"
    arguments = "-t *_load --rounds 20 --validation 0.2"
    polyleaf(f"train {file} {arguments} -m {tmp_path}/m --preset gbdt_pl")
    model = load_model(tmp_path / "m")
    assert model.leaf == "linear"
    assert model.model_.trees[0].leaf_linear(0).coefficients.shape[1] == 2
    polyleaf(f"predict {test} -m {tmp_path}/m --out {tmp_path}/predicted.csv")
    message = fails(capsys, f"train {file} {arguments} -m {tmp_path}/n --linear-fit line")
    assert "--linear-fit" in message
    polyleaf(f"train {file} -t *_load -m {tmp_path}/m --preset tfbt --rounds 5")
    assert load_model(tmp_path / "m").boosting_step == "layer"


def test_labels_that_are_not_in_the_training_data(folder, tmp_path, capsys):
    test = (folder / "letter_test.csv").read_text().splitlines()
    changed = [test[0], *(line[: line.rindex(",")] + ",zz" for line in test[1:4]), *test[4:]]
    path = tmp_path / "changed.csv"
    path.write_text("\n".join(changed) + "\n")
    capsys.readouterr()
    polyleaf(f"evaluate {path} -m {folder}/letter.polyleaf")
    printed = capsys.readouterr().err
    assert f"3 of {len(test) - 1:,} rows have labels" in printed and "'zz'" in printed
    polyleaf(f"evaluate {folder}/letter_test.csv -m {folder}/letter.polyleaf")
    assert "labels" not in capsys.readouterr().err


@pytest.mark.parametrize("where", ["file", "folder"])
def test_missing_targets_have_zero_weight_in_bins(where, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2)).astype(np.float32)
    Y = X + rng.normal(size=X.shape)
    Y[X[:, 0] > 0.3, 0] = np.nan
    path = tmp_path / "rows.csv"
    if where == "file":
        named = [np.where(np.isnan(column), "", column.astype(str)) for column in Y.T]
        write_csv(path, ["a", "b", "y", "z"], [*X.T, *named])
    else:
        pa, path = pytest.importorskip("pyarrow"), tmp_path
        columns = [*X.T, *(pa.array(y, from_pandas=True) for y in Y.T)]
        table = pa.table([pa.array(column) for column in columns], names=["a", "b", "y", "z"])
        pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "rows.parquet")
    model = tmp_path / "m.polyleaf"
    chosen = {"missing_targets": "ignore", "max_bins": 16, "n_estimators": 3}
    settings = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    polyleaf(f"train {path} -t y,z -m {model}", *settings)
    expected = PolyleafRegressor(**chosen).fit(X, Y)
    assert load_model(model).model_.mapper.has_same_bins(expected.model_.mapper)
    np.testing.assert_array_equal(load_model(model).predict(X), expected.predict(X))


@pytest.mark.parametrize("seed", range(6))
def test_classes_with_one_row_are_not_held_out(seed, tmp_path):
    rows = "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}20,rare\n")
    train = f"train {tmp_path}/t.csv -t y -m {tmp_path}/m -n 2 -q"
    polyleaf(f"{train} --validation 0.2 --seed {seed}")
    assert load_model(tmp_path / "m").classes_.tolist() == ["a", "b", "rare"]


def test_categories_of_large_numbers_round_trip(tmp_path):
    """Identities were rounded to 15 digits, so that categories repeated in the file."""
    ids = [4000123412341234 + i for i in range(3)]
    floats = [0.3, 0.30000000000000004, 1e17]
    frame = pd.DataFrame({"id": ids * 20, "f": floats * 20, "y": [0.5, 5.0, 9.0] * 20})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    train = f"train {tmp_path}/t.parquet -t y -m {tmp_path}/m -r 0.5"
    polyleaf(f"{train} -n 30 --categorical id,f")
    for name in ("t.csv", "t.parquet"):
        polyleaf(f"predict {tmp_path}/{name} -m {tmp_path}/m -o {tmp_path}/p.csv")
        np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["y"], frame["y"], atol=0.01)


def test_warnings_are_one_line(tmp_path, capsys):
    frame = pd.DataFrame({"c": ["a", "b", "c"] * 20, "y": [0.5, 5.0, 9.0] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    polyleaf(f"train {tmp_path}/t.csv -t y -m {tmp_path}/m -n 2 -q")
    frame.assign(c="d").to_csv(tmp_path / "new.csv", index=False)
    predict = f"predict {tmp_path}/new.csv -m {tmp_path}/m -o {tmp_path}/p.csv"
    polyleaf(predict)
    assert capsys.readouterr().err == (
        "polyleaf: warning: All values of column 'c' of X are categories that the training data "
        "did not have, such as 'd': the model cannot use them.\n"
        f"60 predictions written to {tmp_path}/p.csv\n"
    )
    polyleaf(f"{predict} --quiet")
    assert capsys.readouterr().err == ""
