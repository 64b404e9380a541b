"""`gpuloom train-predictor`: weights for predicting MIG speeds from a probe under MPS, from measured mixes."""

from pathlib import Path
from typing import Annotated

import typer

from gpuloom.cli.inputs import check_writable
from gpuloom.cli.output import Output, emit, print_json

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
    from gpuloom.perf.slices import training as slice_training
    from gpuloom.perf.slices.errors import judge, small_slice_fit
    from gpuloom.perf.slices.net_training import MEMBERS
    from gpuloom.perf.slices.training import train, train_trend
    from gpuloom.work.measured.figures import figures_from_csv, load_figures
    from gpuloom.work.measured.mps_mixes import all_families, read_mixes
    from gpuloom.work.measured.predictor_weights import save_weights

    check_writable(out)
    mixes = read_mixes(data / "mps_mixes.csv")
    latencies = data / "mig_batch_latency.csv"
    figures = (figures_from_csv(latencies) if latencies.exists() else load_figures()).workloads
    families = all_families(mixes)
    done = 0
    with bar("training", MEMBERS * slice_training.RECIPE.epochs + len(families)) as update:

        def tick() -> None:
            nonlocal done
            done += 1
            update(done)

        predictor = train(mixes, figures, np.random.default_rng(seed), tick=tick)
        held_out = {}
        for family in families:
            held_out[family] = train_trend(mixes, figures, without_family=family)
            tick()
    strangers = {family: judge(held_out[family], mixes, figures, only_family=family) for family in families}
    assert predictor.familiar is not None
    count = len(families)
    about = {
        "gpu": predictor.model.name,
        "source": source,
        "made_by": f"gpuloom train-predictor --data DIR --out FILE --seed {seed}",
        "mixes": len(mixes),
        "families": families,
        "errors": {
            "mae_one_network": predictor.familiar.mae,
            "mae_family_out": sum(errors.mae for errors in strangers.values()) / count,
            "mae_by_family": {family: errors.mae for family, errors in strangers.items()},
            "interval_coverage_family_out": sum(errors.coverage for errors in strangers.values()) / count,
            "small_slices": small_slice_fit(mixes, figures),
        },
    }
    save_weights(out, predictor.to_arrays(), {family: one.to_arrays() for family, one in held_out.items()}, about)
    if output is Output.json:
        print_json({"written": str(out), "size_bytes": out.stat().st_size, **about})
        return
    rows: list[dict[str, object]] = [{"on": "mixes left out", "mae": predictor.familiar.mae, "coverage": None}]
    rows += [
        {"on": f"{family}, never seen", "mae": errors.mae, "coverage": errors.coverage}
        for family, errors in strangers.items()
    ]
    emit(rows, output, f"errors of relative latency, trained on {len(mixes)} mixes")
    typer.echo(f"weights: {out}", err=True)
