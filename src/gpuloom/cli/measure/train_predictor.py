"""`gpuloom train-predictor`: weights for predicting MIG speeds from a probe under MPS, from measured mixes."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.inputs import check_writable
from gpuloom.cli.output import Output, emit, print_json

if TYPE_CHECKING:
    from gpuloom.perf.slices.held_out import Trained

SOURCE = "boringlee24/socc22-miso (MIT)"


def train_predictor(
    data: Annotated[
        Path,
        typer.Option("--data", help="Folder with mps_mixes.csv and, for 2g and 1g, mig_batch_latency.csv."),
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write the weights to (.npz).")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same weights.")] = 0,
    source: Annotated[
        str, typer.Option("--source", help="Whose measurements these are; kept with the weights.")
    ] = SOURCE,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the errors.")] = Output.table,
) -> None:
    """Train the slice predictor and print how wrong it is on what it has not seen.

    Takes about a minute. Errors are of relative latency on 7g, 4g and 3g: of one network on mixes that it left out, and
    on each model family by weights that have never seen it, which are kept too.

    \b
    gpuloom train-predictor --data measurements/miso --out slices.npz
    """
    import numpy as np

    from gpuloom.cli.progress import bar
    from gpuloom.perf.slices.held_out import ticks, train_and_judge
    from gpuloom.work.measured.figures import figures_from_csv, load_figures
    from gpuloom.work.measured.mps_mixes import all_families, read_mixes
    from gpuloom.work.measured.predictor_weights import save_weights

    check_writable(out)
    mixes = read_mixes(data / "mps_mixes.csv")
    latencies = data / "mig_batch_latency.csv"
    figures = (figures_from_csv(latencies) if latencies.exists() else load_figures()).workloads
    steps = count(1)
    with bar("training", ticks(mixes)) as update:
        trained = train_and_judge(mixes, figures, np.random.default_rng(seed), lambda: update(next(steps)))
    about = {
        "gpu": trained.predictor.model.name,
        "source": source,
        "made_by": f"gpuloom train-predictor --data DIR --out FILE --seed {seed}",
        "mixes": len(mixes),
        "families": all_families(mixes),
        "errors": trained.errors,
    }
    held_out = {family: predictor.to_arrays() for family, predictor in trained.held_out.items()}
    save_weights(out, trained.predictor.to_arrays(), held_out, about)
    _print(trained, out, about, output)


def _print(trained: "Trained", out: Path, about: dict[str, object], output: Output) -> None:
    if output is Output.json:
        print_json({"written": str(out), "size_bytes": out.stat().st_size, **about})
        return
    rows: list[dict[str, object]] = [{"on": "mixes left out", "mae": trained.mae_one_network, "coverage": None}]
    rows += [
        {"on": f"{family}, never seen", "mae": errors.mae, "coverage": errors.coverage}
        for family, errors in trained.strangers.items()
    ]
    emit(rows, output, f"errors of relative latency, trained on {about['mixes']} mixes")
    typer.echo(f"weights: {out}", err=True)
