"""An estimator as an OpenML flow, and the estimator made from the flow.

A flow is what the OpenML server stores about a model: its name, parameters and dependencies. With a
network, `openml.runs.run_model_on_task(estimator, task)` evaluates it on the folds of a task, and
`publish()` uploads flow and predictions. Needs `pip install openml`.
"""

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load


def main() -> dict[str, float]:
    try:
        from openml.extensions.sklearn import SklearnExtension
    except ImportError as error:
        print(error)
        return {}

    extension = SklearnExtension()
    model = PolyleafClassifier(n_estimators=20, learning_rate=0.3, random_state=0)
    flow = extension.model_to_flow(model)
    print(flow.name, "depends on", flow.external_version)

    again = extension.flow_to_model(flow)
    X, X_test, y, y_test = load("letter").split()
    scores = [estimator.fit(X, y).score(X_test, y_test) for estimator in (model, again)]
    print("accuracy", scores)
    return {"accuracy": scores[0], "again": scores[1], "parameters": len(flow.parameters)}


if __name__ == "__main__":
    main()
