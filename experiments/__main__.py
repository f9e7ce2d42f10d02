"""Command line of the experiments."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from . import abilities, cases, explaining, gpu, papers, peers, processes, report, results, worker
from .harness import runner, tables
from .harness import worker as runs
from .harness.context import Context
from .harness.paper import Paper, Table
from .harness.store import Store
from .libraries import LIBRARIES

# Modules of studies that belong to no paper, in the order of the page of results.
STUDIES: dict[str, Paper] = {
    name: import_module(f"{__package__}.{name}").PAPER
    for name in (
        "categories", "defaults", "groups", "initial", "intervals", "distributions", "drift",
        "monitoring", "portfolio", "quality", "ranking", "search", "series", "softmax", "estimates",
        "shapes", "clusters",
    )
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = _parser().parse_args(arguments)
    if "repeats" in options and options.repeats is None:
        options.repeats = 1 if options.quick else options.usual_repeats
    with suppress(ValueError):  # outside the main thread
        # When this program is terminated, end the running measurement too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return options.command(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


# --- options ---


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Repeat papers and compare Polyleaf with other libraries.",
    )
    commands = parser.add_subparsers(required=True)

    def add(
        title: str, command: Any, text: str, *options: argparse.ArgumentParser, **defaults: Any
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(title, help=text, parents=options)
        made.set_defaults(command=command, **defaults)
        return made

    quick, data, study = _quick(), _data(), _study()
    p = add("peers", _peers, "Polyleaf beside other libraries, in turn", quick, data, _repeats(3))
    p.add_argument("--case", default="all", choices=[*cases.CASES, "all"])
    p.add_argument("--libraries", help=f"peers, of: {', '.join(LIBRARIES)}")
    p.add_argument("--timeout", type=float, default=3600, help="seconds a measurement may take")
    text = "contributions of features, beside other libraries, on one thread"
    p = add("explain", _explain, text, quick, _repeats(3))
    p.add_argument("--case", default="all", choices=[*explaining.CASES, "all"])
    text = "a tree, and prediction, on a CUDA GPU and on the CPU"
    add("gpu", _gpu, text, quick, _repeats(3))

    known = papers.all_papers()
    text = "the papers' tables, their figures beside ours; goes on where it was stopped"
    p = add("papers", _papers, text, quick, data, study, study="papers")
    p.add_argument("name", nargs="*", metavar="NAME", help=f"of: {', '.join(known)} (default: all)")
    for name, paper in STUDIES.items():
        text = f"{paper.title.lower()}; goes on where it was stopped"
        add(name, _papers, text, quick, data, study, study=name, name=[])

    add("abilities", _abilities, "what each installed library can do at all, tried")
    p = add("results", _results, "writes the page of results, with tables and plots")
    kept, page = Path("experiments/results"), Path("docs/benchmarks/results.md")
    p.add_argument("--from", dest="folder", type=Path, default=kept, help=f"default: {kept}")
    p.add_argument("--to", type=Path, default=page, help=f"default: {page}")
    return parser


def _quick() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(add_help=False)
    text = "small sizes, to see that all works; the figures mean nothing"
    p.add_argument("--quick", action="store_true", help=text)
    p.add_argument("--out", type=Path, help="file of results")
    return p


def _data() -> argparse.ArgumentParser:
    p, folder = argparse.ArgumentParser(add_help=False), Path("../shared/data")
    p.add_argument("--data", type=Path, default=folder, help=f"NAME.npz (default: {folder})")
    p.add_argument("--threads", type=_positive, default=2, help="of every library (default: 2)")
    return p


def _study() -> argparse.ArgumentParser:
    p, limit = argparse.ArgumentParser(add_help=False), 6.0 * 3600
    text = 'only this table or figure, for example "Table V"; may be repeated'
    p.add_argument("--table", action="append", help=text)
    p.add_argument("--again", action="store_true", help="do runs anew that are done")
    p.add_argument("--timeout", type=float, default=limit, help="seconds a run may take")
    return p


def _repeats(usual: int) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--repeats", type=_positive, help=f"default: {usual}, with --quick 1")
    p.set_defaults(usual_repeats=usual)
    return p


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


# --- commands ---


def _peers(options: argparse.Namespace) -> int:
    libraries = options.libraries.split(",") if options.libraries else None
    if unknown := sorted(set(libraries or ()) - set(LIBRARIES)):
        raise ValueError(f"--libraries: {', '.join(unknown)}: not among {', '.join(LIBRARIES)}.")
    chosen = cases.select(options.case, options.quick, options.threads, libraries)
    measure = partial(processes.call, worker.__name__, options.threads, options.timeout)
    found = peers.run(chosen, options.data, options.repeats, measure, runner.log)
    return _show_cases("peers", found, report.make_rows, options.out)


def _explain(options: argparse.Namespace) -> int:
    names = list(explaining.CASES) if options.case == "all" else [options.case]
    found = explaining.run(names, options.quick, options.repeats, runner.log)
    return _show_cases("explain", found, explaining.make_rows, options.out)


def _show_cases(kind: str, cases: Any, make_rows: Any, out: Path | None) -> int:
    """Show each case, and write the finished ones after each, so that an interruption keeps them.

    Return 1 if a contender of ours failed.
    """
    about, done = report.environment(), []
    for case in cases:
        done.append(report.summarise(case))
        report.show(case["title"], *make_rows(case))
        report.write(out, kind, done, about)
    return report.has_failed(done)


def _gpu(options: argparse.Namespace) -> int:
    done = gpu.measure(options.quick, options.repeats, runner.log)
    report.show("A tree on a GPU", *gpu.make_rows(done))
    predicted = gpu.measure_prediction(options.quick, options.repeats, runner.log)
    report.show("Prediction on a GPU", *gpu.make_prediction_rows(predicted))
    report.write(
        options.out, "gpu", {"training": done, "prediction": predicted}, report.environment()
    )
    return gpu.has_failed(done, predicted)


def _papers(options: argparse.Namespace) -> int:
    """Execute the missing runs of studies, show their tables, and return 1 if a run failed."""
    is_paper = options.study == "papers"
    known = papers.all_papers() if is_paper else {options.study: STUDIES[options.study]}
    if unknown := sorted(set(options.name) - set(known)):
        raise ValueError(f"{', '.join(unknown)}: not among {', '.join(known)}.")
    studies = [known[name] for name in known if not options.name or name in options.name]
    if options.table:
        studies = [chosen for study in studies if (chosen := study.only(options.table)).tables]
        if not studies:
            names = " or ".join(options.table)
            raise ValueError(f"--table: no table or figure is called {names}.")
    context = Context(options.data, options.quick, options.threads)
    # Quick runs are so short that starting processes would dominate their time.
    measure = (
        runner.measure_in_process
        if options.quick
        else partial(processes.call, runs.__name__, options.threads, options.timeout)
    )
    suffix = "-quick" if options.quick else ""
    store = Store(options.out or Path(f"results/{options.study}{suffix}.jsonl"))
    failed = []
    for study in studies:
        failed += runner.run(study.tasks(), context, store, measure, again=options.again)
        _show(study, store)
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


def _abilities(options: argparse.Namespace) -> int:
    report.show("What works", *abilities.make_rows(abilities.run()))
    return 0


def _results(options: argparse.Namespace) -> int:
    kept = Store(options.folder / "papers.jsonl")
    studies = [(paper, kept) for paper in papers.all_papers().values()]
    studies += [(paper, Store(options.folder / f"{name}.jsonl")) for name, paper in STUDIES.items()]
    files = [options.folder / f"{kind}.json" for kind in ("peers", "explain")]
    documents = [report.read(path) for path in files if path.is_file()]
    text = results.page(studies, documents, options.to.parent / "images")
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
