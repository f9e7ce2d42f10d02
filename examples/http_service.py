"""A model behind HTTP with the standard library alone, and a load test.

Requests are JSON, `{"rows": [[1.0, null, ...], ...]}`, where null is a missing value; responses are
`{"predictions": [...]}`, or `{task: [...]}` in place of the list for several tasks. Each connection
has a thread, and predictions run in parallel. Invalid requests get status 400 and a message.
`python http_service.py m.polyleaf 8080` serves a file.
"""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast

import numpy as np

from polyleaf import PolyleafRegressor, load_model
from polyleaf.datasets import load


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections alive
    disable_nagle_algorithm = True
    wbufsize = -1  # sends head and body in one packet

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            rows = np.array(json.loads(body)["rows"], np.float64)  # float64 for time stamps
            predictions = cast("Service", self.server).predict(rows)
            status, content = 200, {"predictions": plain(predictions)}
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            status, content = 400, {"error": f"{type(error).__name__}: {error}"}
        answer = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def plain(predictions: np.ndarray | dict[str, np.ndarray]) -> list[Any] | dict[str, list[Any]]:
    """As JSON has it: of several tasks a list each."""
    if isinstance(predictions, dict):
        return {task: found.tolist() for task, found in predictions.items()}
    return predictions.tolist()


class Service(ThreadingHTTPServer):
    """Answers with `predict`, from float64 rows (n, n_features) to an array, or to one for each
    task.
    """

    daemon_threads = True

    def __init__(self, predict: Callable[[np.ndarray], np.ndarray], port: int = 0):
        super().__init__(("127.0.0.1", port), Answer)
        self.predict = predict
        self.port = self.server_address[1]


def ask(connection: HTTPConnection, rows: list[Any]) -> tuple[int, dict[str, Any]]:
    connection.request(
        "POST", "/", json.dumps({"rows": rows}), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def load_test(port: int, X: np.ndarray, n_clients: int, n_requests: int) -> dict[str, float]:
    """Clients that ask for one row after another, each on a connection of its own: requests a
    second of all, and what half of the answers and 99 of 100 took, in milliseconds.
    """
    rows = X.tolist()

    def client(number: int) -> list[float]:
        connection, took = HTTPConnection("127.0.0.1", port), []
        for i in range(n_requests):
            begun = time.perf_counter()
            status, _ = ask(connection, [rows[(number + i * n_clients) % len(rows)]])
            took.append(time.perf_counter() - begun)
            assert status == 200
        connection.close()
        return took

    begun = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as pool:
        took = np.concatenate(list(pool.map(client, range(n_clients))))
    seconds = time.perf_counter() - begun
    half, most = 1e3 * np.quantile(took, [0.5, 0.99])
    return {"requests a second": len(took) / seconds, "p50": float(half), "p99": float(most)}


def main() -> dict[str, float]:
    X, X_test, y, _ = load("energy").split()
    model = PolyleafRegressor(n_estimators=100, random_state=0).fit(X, y)
    predictor = model.predictor()  # thread-safe; one thread per call
    with Service(predictor) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        connection = HTTPConnection("127.0.0.1", service.port)
        _, found = ask(connection, X_test.tolist())
        status, content = ask(connection, [[1.0, 2.0]])
        connection.close()
        measured = load_test(service.port, X_test, n_clients=4, n_requests=50)
        service.shutdown()
    print(content["error"])
    print(", ".join(f"{name} {value:.3g}" for name, value in measured.items()))
    same = float(np.array_equal(found["predictions"], model.predict(X_test)))
    return {"same": same, "error status": status, "answers a second": measured["requests a second"]}


if __name__ == "__main__":
    if sys.argv[1:]:
        Service(load_model(sys.argv[1]).predictor(), int(sys.argv[2])).serve_forever()
    main()
