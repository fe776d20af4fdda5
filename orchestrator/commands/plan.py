"""`plan` and `schema`: a sweep's trials, and what a file may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lm.spec import TrainSpec
from orchestrator.commands import shared
from orchestrator.errors import CannotStartError, command_line
from orchestrator.words import byte_size, counted, in_words, print_table

if TYPE_CHECKING:
    from orchestrator.agenda.expand import Remaining, SweepState
    from orchestrator.execute.estimate import Estimate
    from orchestrator.sweep import ScaledSweep
    from orchestrator.sweep.searches import Searching
    from orchestrator.trials.records import Records

_SPECS = "write a spec for `python -m lm train` for each trial"


def plan(
    file: shared.SweepFile,
    scale: shared.ScaleName = None,
    set_: shared.Set = None,
    seeds: shared.Seeds = None,
    only: shared.Only = None,
    runs: shared.RunsFolder = Path("runs"),
    write_specs: Annotated[Path | None, typer.Option(metavar="DIR", help=_SPECS)] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="measure each model; hours, bytes, memory")] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="with --estimate: windows to train of each model [default: 8]")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="with --estimate: ignore earlier measurements")] = False,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="with --estimate: trials at once")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Show the trials of a sweep file: what each changes, its key and size, and where it stands."""
    from orchestrator.agenda.expand import what_is_left
    from orchestrator.execute.machine import gpus_of, granted
    from orchestrator.sweep.scaled import text_warnings

    shared.goes_with("--estimate", estimate, steps=steps, again=again)
    sweep, state, records = shared.opened_state(file, scale, runs, set_, seeds, only=only, silent=as_json)
    with shared.refused(ValueError, OSError):
        sweep = replace(sweep, resources=granted(sweep.resources, cpus, gpus))
        if not as_json:
            left = what_is_left(sweep, state, records)
            starts = () if left.nothing else _of_start(sweep, file)
            for warning in (*sweep.warnings, *text_warnings(sweep), *starts):
                typer.echo(f"warning: {warning}", err=True)
            print_plan(sweep, state, records)
        cost = None
        if estimate:
            from orchestrator.execute.estimate import estimate as reckon
            from orchestrator.execute.measuring import Measuring

            measuring = Measuring.granted(sweep.resources, steps or 8, again=again)
            cost = reckon(sweep, state, records, measuring, jobs, lambda line: typer.echo(line, err=True))
        if as_json:
            shared.print_json(plan_data(sweep, state, records) | ({"estimate": asdict(cost)} if cost else {}))
        elif cost is not None:
            print_estimate(cost)
        if write_specs is not None:
            from orchestrator.trials.plan import write_specs as write

            specs = counted(len(write(state.table, write_specs)), "spec")
            device = "cuda" if gpus_of(sweep.resources) else "cpu"
            line = command_line(["python", "-m", "lm", "train", f"{write_specs}/KEY.yaml"])
            line += f" --threads {sweep.resources.threads} --device {device}"
            typer.echo(f"{specs} written to {write_specs}; as this sweep would train one: {line}", err=as_json)


def schema() -> None:
    """Print the JSON Schema of sweep files, which sweeps/schema.json holds for editors."""
    from orchestrator.sweep.schema import schema_text

    typer.echo(schema_text(), nl=False)


def print_plan(sweep: ScaledSweep, state: SweepState, records: Records) -> None:
    """Print a line a trial and a search, and a summary. ValueError if a record cannot be read."""
    from orchestrator.agenda.expand import what_is_left
    from orchestrator.agenda.standing import no_verdicts, search_standings, seeds_advice
    from orchestrator.execute.machine import bfloat16_products
    from orchestrator.sweep.space import dimensions_of, range_in_words
    from orchestrator.trials.plan import Facts, changes_in_words, millions, state_in_words, state_of

    trials, left = state.table, _left_in_words(what_is_left(sweep, state, records))
    if state.waiting and sweep.searching is not None:
        typer.echo(left)
        typer.echo(_defaults_in_words(sweep.searching, sweep.baseline.spec))
    states = [state_of(trial, records) for trial in trials]
    names = {trial.key: trial.variant for trial in state.trained}
    if trials:
        rows = [
            (t.variant, t.change, str(t.seed), t.key, millions(t.parameters), state_in_words(t, stands, names))
            for t, stands in zip(trials, states, strict=True)
        ]
        headings = ("variant", "changes", "seed", "key", "parameters", "state")
        print_table(headings, rows, right=("seed", "parameters"))
    if state.waiting and sweep.searching is not None:
        waiting = [(name, change) for name, change in changes_in_words(sweep, Facts()).items() if name in state.waiting]
        if waiting:
            print_table(("variant, after its search", "changes"), waiting)
        for path, dimension in sweep.searching.space.items():
            typer.echo(f"searched: {path} ({' or '.join(map(range_in_words, dimensions_of(dimension)))})")
    for search in search_standings(state.searches):
        typer.echo(search.in_words())
    if (why := no_verdicts(sweep, trials)) is not None:
        typer.echo(why)
    if trials:
        count, each = len({trial.variant for trial in trials}), f" x {counted(len(sweep.variant_seeds), 'seed')}"
        of = counted(count, "variant") + each
        if len(sweep.looks) > 1:
            looks = f"{sweep.looks[0]} to {sweep.looks[-1]} seeds each, more for those that are not decided"
            of = f"{counted(count, 'variant')}, {looks}"
        elif len(sweep.seeds) > len(sweep.variant_seeds):
            others = f"{counted(count - 1, 'variant')}{each}, " if count > 1 else ""
            of = f"{others}the baseline x {len(sweep.seeds)}"
        typer.echo(counts_in_words(len(trials), Counter(states), f" ({of})"))
    if any(trial.spec.precision == "bfloat16" for trial in trials) and bfloat16_products() == "slow":
        typer.echo("precision bfloat16: this CPU has no instructions for it, and trains slower than in float32")
    left_out = {name: why for search in state.searches if search.ended for name, why in search.misfits.items()}
    for name, why in left_out.items():
        typer.echo(f"left out, because what the search found has nothing for it to change: {name} ({why})")
    if not state.waiting:
        typer.echo(left)
        if (advice := seeds_advice(sweep, trials)) is not None:
            typer.echo(advice)


def _of_start(sweep: ScaledSweep, file: Path) -> Iterator[str]:
    """What `sweep` would fetch first, and why it would not start on this machine."""
    from orchestrator.execute.machine import check_machine
    from orchestrator.sweep.read import corpora_to_fetch

    yield from corpora_to_fetch(sweep, file)
    try:
        check_machine(sweep, (variant.spec for variant in sweep.variants))
    except CannotStartError as error:
        yield f"`sweep` would not start here: {error}"


def _defaults_in_words(searching: Searching, base: TrainSpec) -> str:
    """What of a search is easily overlooked, since the file may not say it."""
    scheduler, sampler = searching.scheduler, searching.sampler
    grace, startup = getattr(scheduler, "grace_epochs", 0), getattr(sampler, "startup_trials", 0)
    stopping = "no trial is stopped early (scheduler null)" if scheduler is None else f"scheduler {scheduler.kind}"
    if grace >= base.most_epochs:
        stopping += f", which stops none because grace_epochs ({grace}) reach the base's epochs ({base.most_epochs})"
    if searching.trials is not None and startup >= searching.trials:
        stopping += f"; sampler {sampler.kind}, all at random because startup_trials ({startup}) reach trials "
        stopping += f"({searching.trials})"
    clip = "not clipped" if base.optimizer.clip is None else f"clipped at {base.optimizer.clip:g}"
    return f"{stopping}; in the base gradients are {clip}, embeddings {'tied' if base.model.tied else 'not tied'}"


def plan_data(sweep: ScaledSweep, state: SweepState, records: Records) -> dict[str, Any]:
    """What `plan --json` prints: the sweep, its trials, how many are in each state, its searches, what is left.

    A variant that is being tuned has no trials yet: none is trained with the values of the file.
    """
    from orchestrator.agenda.expand import what_is_left
    from orchestrator.agenda.standing import search_standings
    from orchestrator.trials.plan import state_of

    names = ("variant", "change", "seed", "key", "parameters", "reads_from", "starts_from")
    trials = [
        {name: getattr(trial, name) for name in names} | {"state": state_of(trial, records)} for trial in state.table
    ]
    return {
        "sweep": sweep.name,
        "scale": sweep.scale,
        "question": sweep.question,
        "counts": dict(Counter(trial["state"] for trial in trials)),
        "trials": trials,
        "searches": [asdict(search) for search in search_standings(state.searches)],
        "left": asdict(what_is_left(sweep, state, records)),
    }


def counts_in_words(trials: int, states: Mapping[str, int], detail: str = "") -> str:
    """`4 trials: 2 done, 1 running`."""
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{counted(trials, 'trial')}{detail}{counts and f': {counts}'}"


def _left_in_words(left: Remaining) -> str:
    if left.nothing:
        return "nothing is left to train"
    fewest, most = left.table_trials_fewest, left.table_trials_most
    if left.search_trials == 0 and fewest == most:
        return f"{most} to train"
    if left.search_trials == 0:
        return f"{fewest} to train, up to {most} if comparisons stay undecided"
    searches = "as many search trials as the hours of the search allow"
    if left.search_trials is not None:
        searches = f"up to {counted(left.search_trials, 'search trial')}"
    table = str(most) if fewest == most else f"{fewest} to {most}"
    return f"to train: {searches}, then {table} for the table of results, with the values that the searches find"


def print_estimate(cost: Estimate) -> None:
    """Print a line for each variant that has to train, and what all of it takes."""
    headings = ("variant", "trials to train", "tokens/s", "time, all trials", "peak memory")
    rows = []
    for row in (row for row in cost.variants if row.trials):
        speed, peak = f"{row.tokens_per_second:,.0f}", byte_size(row.peak_memory_bytes)
        rows.append((row.variant, str(row.trials), speed, in_words(row.seconds), peak))
    if rows:
        print_table(headings, rows, right=headings[1:])
    count = Counter(cost.states)
    ready = count["done"] + count["diverged"] + count["read"]
    new = count["new"] + count["failed"] + count["damaged"]
    lines = [f"trials: {new} new, {ready} done or read, {count['to resume']} to resume"]
    if cost.packing is not None:
        named = {"CPUs": cost.packing.by_cpus, "memory": cost.packing.by_memory, "GPUs": cost.packing.by_gpus}
        limits = ", ".join(f"{limit} by {name}" for name, limit in named.items() if limit is not None)
        more = (
            f"; `sweep` starts {started} unless you say --jobs" if (started := cost.packing.started) > cost.jobs else ""
        )
        lines += [
            f"whole sweep: at most {in_words(cost.seconds)}, {cost.jobs} at once, {cost.core_hours:,.1f} core-hours; "
            "trials that may stop early count to their last epoch, the neural cache's search is not counted, and "
            "trials that run at the same time may slow each other down",
            f"disk: {byte_size(cost.disk_bytes)} kept, {byte_size(cost.checkpoint_bytes)} of checkpoints meanwhile",
            f"room for {cost.packing.at_once} at once: {limits}{more}",
        ]
    if (smallest := cost.detectable) is None:
        lines.append("smallest detectable difference: unknown until two finished seeds of a variant differ")
    else:
        text_error = "unknown" if smallest.text_error_nats is None else f"{smallest.text_error_nats:.2g} nats"
        lines.append(
            f"smallest detectable difference: {smallest.perplexity:.2g} perplexity ({smallest.nats:.2g} nats) with "
            f"{smallest.seeds} seeds, at 80% power and the report's level; standard deviation between seeds "
            f"{smallest.deviation_nats:.2g} nats, standard error by the text {text_error}; "
            f"an effect of zero is found to be none with a margin of {smallest.margin:.2g} or more"
        )
    typer.echo("\n".join(lines))
