"""The command line of the benchmarks. Owns arguments, output and exit codes; no measuring."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from . import cases, compare, kernels, peers, report
from .libraries import LIBRARIES


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code."""
    options = _parser().parse_args(arguments)
    return options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Polyleaf.")
    commands = parser.add_subparsers(required=True)

    p = commands.add_parser(
        "peers", help="Polyleaf beside other libraries, in turn, each run in its own process"
    )
    p.set_defaults(command=_peers)
    p.add_argument("--case", default="all", choices=[*cases.CASES, "all"])
    p.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder of NAME.npz (default: %(default)s)"
    )
    p.add_argument(
        "--threads", type=_positive, default=2, help="threads of every library (default: %(default)s)"
    )
    p.add_argument("--libraries", help=f"peers, in place of the case's own, of: {', '.join(LIBRARIES)}")
    p.add_argument(
        "--timeout", type=float, default=3600, help="seconds a measurement may take (default: %(default)s)"
    )
    _common(p, repeats=3)

    p = commands.add_parser("kernels", help="the parts of the core, on one thread")
    p.set_defaults(command=_kernels)
    _common(p, repeats=7)

    p = commands.add_parser("compare", help="what got slower or worse; exit code 1 when something did")
    p.set_defaults(command=_compare)
    p.add_argument("before", type=Path)
    p.add_argument("after", type=Path)
    p.add_argument(
        "--tolerance", type=float, default=0.05, help="relative change that is noise (default: %(default)s)"
    )
    return parser


def _common(parser: argparse.ArgumentParser, repeats: int) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that all works; the times mean nothing"
    )
    parser.add_argument("--repeats", type=_positive, default=repeats, help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="result file (JSON), for example results/NAME.json")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _peers(options: argparse.Namespace) -> int:
    libraries = options.libraries.split(",") if options.libraries else None
    unknown = sorted(set(libraries or ()) - set(LIBRARIES))
    if unknown:
        print(f"--libraries: {', '.join(unknown)}: not among {', '.join(LIBRARIES)}.", file=sys.stderr)
        return 2
    chosen = cases.select(options.case, options.quick, options.threads, libraries)
    about, done = report.environment(), []
    measure = peers.in_own_process(options.timeout)
    for case in peers.run(chosen, options.data, options.repeats, measure, _say):
        done.append(report.summarise(case))
        report.show(case["title"], *report.rows_of(case))
        _write(
            options.out, "peers", done, about
        )  # after every case: nothing is lost when a later one is stopped
    failed = [c for case in done for c in case["contenders"] if c["library"] == "polyleaf" and c["error"]]
    return 1 if failed else 0


def _kernels(options: argparse.Namespace) -> int:
    about = report.environment()
    done = [report.summarise(case) for case in kernels.run(options.quick, options.repeats, _say)]
    report.show("Parts of the core, one thread", *kernels.rows_of(done))
    _write(options.out, "kernels", done, about)
    return 0


def _compare(options: argparse.Namespace) -> int:
    try:
        before, after = report.read(options.before), report.read(options.after)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    found = compare.compare(before, after, options.tolerance)
    if before["environment"].get("cpu") != after["environment"].get("cpu"):
        _say("Another processor: times are not comparable.")
    for name in found.not_comparable:
        _say(f"Not comparable, another problem or other settings: {name}")
    for name in found.lost:
        _say(f"Lost: {name}")
    report.show("Polyleaf", *compare.rows_of(found.changes))
    moved = [change for change in found.peers if change.verdict != "same"]
    if moved:
        report.show("Peers that moved too: the machine or their versions differ", *compare.rows_of(moved))
    return 1 if found.is_worse else 0


def _write(path: Path | None, kind: str, done: list[dict[str, Any]], about: dict[str, Any]) -> None:
    if path is not None:
        report.write(path, report.document(kind, done, about))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
