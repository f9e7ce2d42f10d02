"""TabArena experiments: the default parameters and one random configuration.

The task is made from a data frame; published tasks of TabArena are used the same way. A bag of
eight models is trained sequentially. Needs `pip install tabarena`.
"""

import contextlib
import tempfile

from polyleaf.datasets import load


def main() -> dict[str, float]:
    try:
        import pandas as pd
        from tabarena.benchmark.task import UserTask
        from tabarena.utils.config_utils import ConfigGenerator

        from polyleaf.integrations.autogluon import PolyleafModel, search_space
    except ImportError as error:
        print(error)
        return {}

    data = load("energy")
    table = pd.DataFrame(data.X, columns=data.feature_names).assign(heating=data.y[:, 0])
    rows = list(range(len(table)))
    split = [i for i in rows if i % 5], [i for i in rows if i % 5 == 0]
    task = UserTask(task_name="energy").create_task(
        target_feature="heating", problem_type="regression", dataset=table, splits={0: {0: split}}
    )
    configurations = ConfigGenerator(search_space("regression"), PolyleafModel, manual_configs=[{}])
    experiments = configurations.generate_all_bag_experiments(
        num_random_configs=1, fold_fitting_strategy="sequential_local"
    )
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):  # folder for AutoGluon's models
        for experiment in experiments:
            result = experiment.run(task, fold=0, task_name="energy", cache_task_key="energy")
            found[experiment.name] = float(result["metric_error"])
    print(found)
    return found


if __name__ == "__main__":
    main()
