"""Command line of the experiments."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import (
    abilities,
    cases,
    categories,
    defaults,
    distributions,
    drift,
    estimates,
    explaining,
    gpu,
    groups,
    initial,
    intervals,
    loading,
    monotone,
    papers,
    peers,
    portfolio,
    report,
    results,
    search,
    shapes,
    softmax,
)
from .harness import runner, tables
from .harness.context import Context
from .harness.paper import Paper, Table
from .harness.store import Store
from .libraries import LIBRARIES

# Studies that belong to no paper, by the name of their command and file.
STUDIES = {
    "categories": categories.PAPER,
    "defaults": defaults.PAPER,
    "groups": groups.PAPER,
    "initial": initial.PAPER,
    "intervals": intervals.PAPER,
    "monotone": monotone.PAPER,
    "distributions": distributions.PAPER,
    "drift": drift.PAPER,
    "portfolio": portfolio.PAPER,
    "search": search.PAPER,
    "softmax": softmax.PAPER,
    "estimates": estimates.PAPER,
    "loading": loading.PAPER,
    "shapes": shapes.PAPER,
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = _parser().parse_args(arguments)
    if "repeats" in options and options.repeats is None:
        options.repeats = 1 if options.quick else options.usual_repeats
    with suppress(ValueError):  # outside the main thread
        # When this program is terminated, end the running measurement too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Repeat papers and compare Polyleaf with other libraries.",
    )
    commands = parser.add_subparsers(required=True)

    p = commands.add_parser(
        "peers", help="Polyleaf beside other libraries, in turn, each run in its own process"
    )
    p.set_defaults(command=_peers)
    p.add_argument("--case", default="all", choices=[*cases.CASES, "all"])
    _data_and_threads(p)
    p.add_argument(
        "--libraries", help=f"peers, in place of the case's own, of: {', '.join(LIBRARIES)}"
    )
    p.add_argument(
        "--timeout",
        type=float,
        default=3600,
        help="seconds a measurement may take (default: %(default)s)",
    )
    _common(p, repeats=3)

    p = commands.add_parser(
        "explain", help="contributions of features, beside other libraries, on one thread"
    )
    p.set_defaults(command=_explain)
    p.add_argument("--case", default="all", choices=[*explaining.CASES, "all"])
    _common(p, repeats=3)

    p = commands.add_parser("gpu", help="a tree, and prediction, on a CUDA GPU and on the CPU")
    p.set_defaults(command=_gpu)
    _common(p, repeats=3)

    known = papers.all_papers()
    p = commands.add_parser(
        "papers", help="the papers' tables, their figures beside ours; goes on where it was stopped"
    )
    p.set_defaults(command=_papers)
    p.add_argument("name", nargs="*", metavar="NAME", help=f"of: {', '.join(known)} (default: all)")
    _study(p, "papers")

    for name, study in STUDIES.items():
        p = commands.add_parser(name, help=f"{study.title.lower()}; goes on where it was stopped")
        p.set_defaults(command=_studies, study=name)
        _study(p, name)

    p = commands.add_parser("abilities", help="what each installed library can do at all, tried")
    p.set_defaults(command=_abilities)

    p = commands.add_parser("results", help="writes the page of results, with tables and plots")
    p.set_defaults(command=_results)
    p.add_argument(
        "--from",
        dest="folder",
        type=Path,
        default=Path("experiments/results"),
        help="result files (default: %(default)s, those of the page in docs/)",
    )
    p.add_argument(
        "--to", type=Path, default=Path("docs/benchmarks/results.md"), help="default: %(default)s"
    )

    return parser


def _data_and_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        help="folder of NAME.npz (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=_positive,
        default=2,
        help="threads of every library (default: %(default)s)",
    )


def _study(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--table",
        action="append",
        help='only this table or figure, for example "Table V"; may be repeated',
    )
    _data_and_threads(parser)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes, to see that all works; the figures mean nothing",
    )
    parser.add_argument("--out", type=Path, help=f"finished runs (default: results/{name}.jsonl)")
    parser.add_argument("--again", action="store_true", help="do runs anew that are done")
    parser.add_argument(
        "--timeout",
        type=float,
        default=6 * 3600,
        help="seconds a run may take (default: %(default)s)",
    )


def _common(parser: argparse.ArgumentParser, repeats: int) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes, to see that all works; the times mean nothing",
    )
    parser.add_argument("--repeats", type=_positive, help=f"default: {repeats}, with --quick 1")
    parser.set_defaults(usual_repeats=repeats)
    parser.add_argument(
        "--out", type=Path, help="result file (JSON), for example results/NAME.json"
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _peers(options: argparse.Namespace) -> int:
    libraries = options.libraries.split(",") if options.libraries else None
    unknown = sorted(set(libraries or ()) - set(LIBRARIES))
    if unknown:
        print(
            f"--libraries: {', '.join(unknown)}: not among {', '.join(LIBRARIES)}.", file=sys.stderr
        )
        return 2
    chosen = cases.select(options.case, options.quick, options.threads, libraries)
    about, done = report.environment(), []
    measure = peers.make_subprocess_measure(options.timeout)
    for case in peers.run(chosen, options.data, options.repeats, measure, _log):
        done.append(report.summarise(case))
        report.show(case["title"], *report.make_rows(case))
        _write(
            options.out, "peers", done, about
        )  # after every case, so that finished cases are kept on interruption
    return report.has_failed(done)


def _explain(options: argparse.Namespace) -> int:
    about, done = report.environment(), []
    names = list(explaining.CASES) if options.case == "all" else [options.case]
    for case in explaining.run(names, options.quick, options.repeats, _log):
        done.append(report.summarise(case))
        report.show(case["title"], *explaining.make_rows(case))
        _write(options.out, "explain", done, about)
    return report.has_failed(done)


def _gpu(options: argparse.Namespace) -> int:
    done = gpu.measure(options.quick, options.repeats, _log)
    report.show("A tree on a GPU", *gpu.make_rows(done))
    predicted = gpu.measure_prediction(options.quick, options.repeats, _log)
    report.show("Prediction on a GPU", *gpu.make_prediction_rows(predicted))
    _write(options.out, "gpu", {"training": done, "prediction": predicted}, report.environment())
    same = all(predicted["same"].values()) and not any(case["same_bytes"] is False for case in done)
    failed = any(
        found["error"]
        for case in done
        for name, found in case["libraries"].items()
        if name.startswith("polyleaf")
    )
    return 0 if same and not failed else 1


def _papers(options: argparse.Namespace) -> int:
    known = papers.all_papers()
    unknown = sorted(set(options.name) - set(known))
    if unknown:
        print(f"{', '.join(unknown)}: not among {', '.join(known)}.", file=sys.stderr)
        return 2
    chosen = [paper for name, paper in known.items() if not options.name or name in options.name]
    return _run_studies(chosen, "papers", options)


def _abilities(options: argparse.Namespace) -> int:
    report.show("What works", *abilities.make_rows(abilities.run()))
    return 0


def _studies(options: argparse.Namespace) -> int:
    return _run_studies([STUDIES[options.study]], options.study, options)


def _run_studies(studies: list[Paper], name: str, options: argparse.Namespace) -> int:
    """Execute the missing runs, show the tables and return 1 if a run failed."""
    if options.table:
        studies = [chosen for study in studies if (chosen := study.only(options.table)).tables]
        if not studies:
            print(
                f"--table: no table or figure is called {' or '.join(options.table)}.",
                file=sys.stderr,
            )
            return 2
    suffix = "-quick" if options.quick else ""
    context = Context(options.data, options.quick, options.threads)
    # Quick runs are so short that starting processes would dominate their time.
    measure = (
        runner.measure_in_process
        if options.quick
        else runner.make_subprocess_measure(context, options.timeout)
    )
    try:
        store = Store(options.out or Path(f"results/{name}{suffix}.jsonl"))
        failed = []
        for study in studies:
            failed += runner.run(study.tasks(), context, store, measure, again=options.again)
            _show(study, store)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if failed:
        print(f"{len(failed)} runs failed: {', '.join(t.key for t in failed)}", file=sys.stderr)
    return 1 if failed else 0


def _show(study: Paper, store: Store) -> None:
    for table in study.tables:
        if isinstance(table, Table):
            filled = tables.fill(study, table, store)
            report.show(f"{study.key}, {table.name}: {table.title}", filled.header, filled.rows)
            for line in filter(None, (tables.count(filled.verdicts), *filled.notes)):
                print(line)


def _results(options: argparse.Namespace) -> int:
    kept = Store(options.folder / "papers.jsonl")
    studies = [(paper, kept) for paper in papers.all_papers().values()]
    for name, study in STUDIES.items():
        studies.append((study, Store(options.folder / f"{name}.jsonl")))
    files = [options.folder / f"{kind}.json" for kind in ("peers", "explain")]
    text = results.page(
        studies,
        [report.read(path) for path in files if path.is_file()],
        options.to.parent / "images",
    )
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(text)
    return 0


def _write(path: Path | None, kind: str, done: list[dict[str, Any]], about: dict[str, Any]) -> None:
    if path is not None:
        report.write(path, report.document(kind, done, about))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
