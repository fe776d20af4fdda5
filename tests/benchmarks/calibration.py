"""Whether the report's verdicts err as seldom as they say: simulated sweeps, and real ones of a model that is one.

    python -m tests.benchmarks.calibration --sweeps 2000
    python -m tests.benchmarks.calibration --real DIR --seeds 72

Simulated sweeps have nine variants, in some settings two, four or sixteen, that are one in truth (A/A), or differ by a
known effect. A loss is the variant's mean, plus the training run's noise, plus the text's: the text is new in every
sweep, the same for all variants of it, and treats each of them differently. Every sweep goes through
`statistics.compare`, as a report does. Printed are, for each way to be noisy and each number of seeds: the family-wise
error (a sweep with any verdict that is wrong), the coverage of single intervals and of all of a sweep together, and
the half width of an interval in per cent of perplexity. Then the power: how often an effect is told, or told to be
none.

With `--real` a tiny model is trained with many seeds on the text that every Python carries, and sweeps are dealt from
these records: nine variants of one name each, their seeds drawn without replacement. The same command goes on where it
was killed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from lm.record import opened, read_record, token_nats_path
from lm.spec import TrainSpec
from orchestrator.analysis.effects import Comparison, perplexity_ratio
from orchestrator.analysis.looks import LEVEL_OF_ERROR, Looks
from orchestrator.analysis.noise import BLOCKS, Array, Losses
from orchestrator.analysis.outcomes import TokenLossReader
from orchestrator.analysis.statistics import MARGIN, compare, contrasts
from orchestrator.report.sections.interactions import estimands
from orchestrator.sweep.designs import Ablation, Factors

VARIANTS = 9
SEEDS = (2, 3, 5, 8)
LOOKS = Looks((2, 3, 4, 6, 8))
SEED_DEVIATION = 0.003
"""Nats per token; a third of a per cent of perplexity, as the shipped sweeps show."""
TEXT_DEVIATION = 0.001
"""Of a mean over the text: what another text of the same size does to a variant, beside what it does to all."""
_PIECES = 4
"""A block of the text is made of so many pieces, each like the one before it as far as the setting says.

Where the text dominates, neighbouring quarters of its 64 blocks correlate by 0.85, neighbouring blocks by 0.65.
"""


@dataclass(frozen=True)
class Setting:
    """One way to be noisy. With `topic_blocks` the text changes its subject after that many blocks on average.

    `kinds` has a letter a variant: those of one letter have one kind of output head. Without any, all have.
    """

    name: str
    ratios: Callable[[np.random.Generator, int], Array] = lambda rng, count: np.ones(count)
    heavy: bool = False
    skewed: bool = False
    text_deviation: float = TEXT_DEVIATION
    text_correlation: float = 0.0
    topic_blocks: float = 0.0
    seed_correlation: float = 0.0
    correlated: int = VARIANTS
    variants: int = VARIANTS
    kinds: str = ""


def _some(ratio: float, *places: int) -> Callable[[np.random.Generator, int], Array]:
    def ratios(rng: np.random.Generator, count: int) -> Array:
        found = np.ones(count)
        found[list(places)] = ratio
        return found

    return ratios


def _given(*values: float) -> Callable[[np.random.Generator, int], Array]:
    return lambda rng, count: np.array(values)


def _spread(factor: float) -> Callable[[np.random.Generator, int], Array]:
    return lambda rng, count: np.exp(math.log(factor) * (rng.random(count) - 0.5))


SETTINGS = (
    Setting("normal, one deviation"),
    Setting("deviations differ up to 4-fold", _spread(4.0)),
    Setting("deviations differ up to 10-fold", _spread(10.0)),
    Setting("one variant has 5 times the noise", _some(5.0, 3)),
    Setting("one variant has 20 times the noise", _some(20.0, 3)),
    Setting("three variants have 50 times the noise", _some(50.0, 2, 4, 6)),
    Setting("the baseline has 3 times the noise", _some(3.0, 0)),
    Setting("the baseline has 20 times the noise", _some(20.0, 0)),
    Setting("the baseline has a third of the noise", _some(1 / 3, 0)),
    Setting("heavy tails (t, 3 degrees)", heavy=True),
    Setting("heavy tails, up to 4-fold", _spread(4.0), heavy=True),
    Setting("correlated tokens", text_correlation=0.8),
    Setting("correlated tokens, text dominates", text_deviation=0.006, text_correlation=0.85),
    Setting("seeds correlate (0.7)", seed_correlation=0.7),
    Setting("seeds of five variants correlate (0.9)", seed_correlation=0.9, correlated=5),
    Setting("a baseline and one variant", variants=2),
    Setting("the same, one has 5 times the noise", _some(5.0, 1), variants=2),
    Setting("a baseline and three variants", variants=4),
    Setting("the same, one has 5 times the noise", _some(5.0, 1), variants=4),
    Setting("the same, the baseline has 5 times", _some(5.0, 0), variants=4),
    Setting("a baseline and fifteen variants", variants=16),
    Setting("the same, the baseline has 5 times", _some(5.0, 0), variants=16),
    Setting("skewed seeds (exponential)", skewed=True),
    Setting("long topics (3 blocks), text dominates", text_deviation=0.006, topic_blocks=3.0),
    Setting("nine kinds of heads, up to 10-fold", _spread(10.0), kinds="abcdefghi"),
    Setting("nine kinds, the baseline has 5 times", _some(5.0, 0), kinds="abcdefghi"),
    Setting("three kinds with 1, 5, 30 times the noise", _given(1, 1, 1, 5, 5, 5, 30, 30, 30), kinds="aaabbbccc"),
    Setting("the same, one odd variant in each", _given(1, 1, 5, 5, 5, 20, 30, 30, 100), kinds="aaabbbccc"),
    Setting("long topics (6 blocks), text dominates", text_deviation=0.006, topic_blocks=6.0),
    Setting("long topics (10 blocks), text dominates", text_deviation=0.006, topic_blocks=10.0),
)


DESIGNS = {
    "two components, all combinations": Ablation("factorial", tuple("AB")),
    "three components, all combinations": Ablation("factorial", tuple("ABC")),
    "four components, all combinations": Ablation("factorial", tuple("ABCD")),
    "four components, half of them": Ablation("half", tuple("ABCD")),
    "three components, both": Ablation("both", tuple("ABC")),
}


@dataclass
class Tally:
    """What became of the sweeps of one setting."""

    sweeps: int = 0
    wrong: int = 0
    together: int = 0
    singles: list[bool] = field(default_factory=list)
    reaches: list[float] = field(default_factory=list)

    def add(self, comparison: Comparison, truth: float) -> None:
        """Count a sweep whose effects are all `truth` nats."""
        self.sweeps += 1
        self.wrong += any(is_wrong(effect.verdict, truth) for effect in comparison.effects.values())
        ends = [effect.interval for effect in comparison.effects.values() if effect.interval is not None]
        covered = [interval.low <= truth <= interval.high for interval in ends]
        self.singles += covered
        self.together += all(covered)
        self.reaches += [(interval.high - interval.low) / 2 for interval in ends]

    def row(self) -> str:
        """Error, coverages and half width in per cent."""
        width = 100 * (perplexity_ratio(float(np.median(self.reaches))) - 1)
        return (
            f"{100 * self.wrong / self.sweeps:5.1f}  {100 * np.mean(self.singles):8.1f}  "
            f"{100 * self.together / self.sweeps:8.1f}  {width:10.2f}"
        )


def is_wrong(verdict: str, truth: float) -> bool:
    """Whether a verdict says what is not so."""
    match verdict:
        case "raises":
            return truth <= 0
        case "lowers":
            return truth >= 0
        case "equivalent":
            return abs(truth) >= math.log1p(MARGIN)
        case _:
            return False


def simulated(setting: Setting, seeds: int, rng: np.random.Generator, effect: float | Array = 0.0) -> list[Losses]:
    """The losses of one sweep, the baseline's first; the others are `effect` nats worse, a number for all or each."""
    size = setting.variants, seeds
    draws = rng.standard_t(3, size) / math.sqrt(3) if setting.heavy else rng.normal(size=size)
    draws = rng.exponential(size=size) - 1 if setting.skewed else draws
    shared, own = math.sqrt(setting.seed_correlation), math.sqrt(1 - setting.seed_correlation)
    alike = slice(0, setting.correlated)
    draws[alike] = shared * rng.normal(size=seeds) + own * draws[alike]
    runs = SEED_DEVIATION * setting.ratios(rng, setting.variants)[:, None] * draws
    runs[1:] += np.reshape(effect, (-1, 1))
    if setting.topic_blocks:
        texts = topics(rng, setting)
    else:
        along = _along(rng.normal(size=(setting.variants, BLOCKS * _PIECES)), setting)
        texts = along.reshape(setting.variants, BLOCKS, _PIECES).mean(axis=2)
    numbers = tuple(range(seeds))
    found = []
    for run, text, kind in zip(runs, texts, setting.kinds or " " * setting.variants, strict=True):
        # Runs of one variant differ along the text too: a third of what variants do.
        own_text = setting.text_deviation * math.sqrt(BLOCKS) / 3 * rng.normal(size=(seeds, BLOCKS))
        blocks = 4.6 + run[:, None] + text + own_text
        found.append(Losses(numbers, blocks.mean(axis=1), blocks, kind))
    return found


def _along(noise: Array, setting: Setting) -> Array:
    """Pieces of text, each like the one before it; the deviation of a mean over the text is the setting's."""
    pieces, correlation = noise.copy(), setting.text_correlation
    for k in range(1, noise.shape[1]):
        pieces[:, k] = correlation * pieces[:, k - 1] + math.sqrt(1 - correlation**2) * noise[:, k]
    inflation = math.sqrt((1 + correlation) / (1 - correlation))
    return np.asarray(setting.text_deviation * math.sqrt(noise.shape[1]) / inflation * pieces)


def topics(rng: np.random.Generator, setting: Setting) -> Array:
    """Blocks of a text whose topics last a geometric time; the deviation of a mean over the text is the setting's."""
    ends = rng.random(BLOCKS) < 1 / setting.topic_blocks
    topics = np.cumsum(ends)
    blocks = rng.normal(size=(setting.variants, int(topics[-1]) + 1))[:, topics]
    lags = np.arange(1, BLOCKS)
    alike = (1 - lags / BLOCKS) * (1 - 1 / setting.topic_blocks) ** lags
    return np.asarray(setting.text_deviation / math.sqrt((1 + 2 * alike.sum()) / BLOCKS) * blocks)


def judge(sweep: list[Losses], level: float = 1 - LEVEL_OF_ERROR) -> Comparison:
    """A sweep's comparison, as the report makes it."""
    return compare(sweep[0], {str(k): losses for k, losses in enumerate(sweep[1:])}, level)


def judge_design(sweep: list[Losses], ablation: Ablation) -> Comparison:
    """The contrasts of a design, as the report makes them."""
    cells = (Factors(), *ablation.removals)
    of_cell = {away: str(k) for k, away in enumerate(cells)}
    asked = {f"{each.kind} {each.name}": each.weights for each in estimands(ablation)}
    weights = {name: {of_cell[away]: weight for away, weight in each.items()} for name, each in asked.items()}
    return contrasts({of_cell[away]: losses for away, losses in zip(cells, sweep, strict=True)}, weights)


def first(losses: Losses, seeds: int) -> Losses:
    """Those of the first seeds."""
    blocks = None if losses.blocks is None else losses.blocks[:seeds]
    return Losses(losses.seeds[:seeds], losses.nats[:seeds], blocks, losses.kind)


def in_looks(sweep: list[Losses], looks: Looks = LOOKS) -> Iterator[tuple[Comparison, int]]:
    """The comparisons of a sweep that gives seeds to what is undecided, look by look, and the trials until then."""
    counts = [looks.planned[-1]] + [looks.planned[0]] * (len(sweep) - 1)
    for look in looks.planned:
        comparison = judge([first(s, n) for s, n in zip(sweep, counts, strict=True)], 1 - looks.error(look))
        yield comparison, sum(counts)
        undecided = [int(name) + 1 for name, e in comparison.effects.items() if e.verdict == "not decided"]
        if not undecided or look == looks.planned[-1]:
            return
        following = looks.planned[looks.planned.index(look) + 1]
        for place in undecided:
            counts[place] = following


def error_table(sweeps: int) -> None:
    """Print the family-wise error and the coverage of every setting."""
    print(f"{VARIANTS} variants that are one, {sweeps:,} sweeps a line; per cent")
    print("noise                                  seeds  error  coverage  together  half width")
    for setting in SETTINGS:
        for seeds in SEEDS:
            rng, tally = np.random.default_rng(seeds), Tally()
            for _ in range(sweeps):
                tally.add(judge(simulated(setting, seeds, rng)), 0.0)
            print(f"{setting.name:38} {seeds:5}  {tally.row()}", flush=True)
    for setting in SETTINGS[:5]:
        rng, tally, wrong = np.random.default_rng(0), Tally(), 0
        for _ in range(sweeps):
            found = [comparison for comparison, _ in in_looks(simulated(setting, LOOKS.planned[-1], rng))]
            tally.add(found[-1], 0.0)
            wrong += any(is_wrong(e.verdict, 0.0) for look in found for e in look.effects.values())
        print(f"{setting.name:38} looks  {tally.row()}   at any look {100 * wrong / sweeps:.1f}", flush=True)
    setting, truth = SETTINGS[0], math.log1p(MARGIN)
    for seeds in SEEDS:  # an effect as large as the margin must not be told as none
        rng, tally = np.random.default_rng(seeds), Tally()
        for _ in range(sweeps):
            tally.add(judge(simulated(setting, seeds, rng, truth)), truth)
        print(f"{'normal, all effects at the margin':38} {seeds:5}  {tally.row()}", flush=True)


def design_table(sweeps: int) -> None:
    """Print the family-wise error and the coverage of the contrasts of designs, which weigh many variants at once."""
    print(f"designs of variants that are one, {sweeps:,} sweeps a line; per cent")
    print("design and noise                       seeds  error  coverage  together  half width")
    for name, ablation in DESIGNS.items():
        for noise, ratio in (("one deviation", 1.0), ("one has 5 times", 5.0), ("one has 20 times", 20.0)):
            setting = Setting(name, _some(ratio, 1), variants=1 + len(ablation.removals))
            for seeds in SEEDS:
                rng, tally = np.random.default_rng(seeds), Tally()
                for _ in range(sweeps):
                    tally.add(judge_design(simulated(setting, seeds, rng), ablation), 0.0)
                print(f"{f'{name}, {noise}':38} {seeds:5}  {tally.row()}", flush=True)


def stepped_table(sweeps: int) -> None:
    """Print how often equals are told apart while others are decided, whose share of the error they then get."""
    print(f"every other variant worse by 2%, {sweeps:,} sweeps a line; per cent with a wrong verdict on the rest")
    effects = np.arange(VARIANTS - 1) % 2 * math.log1p(0.02)
    for setting in SETTINGS[:1] + SETTINGS[2:3] + SETTINGS[5:7]:
        for seeds in SEEDS:
            rng, wrong, decided = np.random.default_rng(seeds), 0, 0
            for _ in range(sweeps):
                verdicts = [
                    effect.verdict for effect in judge(simulated(setting, seeds, rng, effects)).effects.values()
                ]
                wrong += any(is_wrong(verdict, 0.0) for verdict in verdicts[::2])
                decided += sum(verdict == "raises" for verdict in verdicts[1::2])
            found = 100 * decided / sweeps / len(effects[1::2])
            print(f"{setting.name:38} {seeds:5}  {100 * wrong / sweeps:5.1f}   found {found:.0f}%", flush=True)


def power_table(sweeps: int) -> None:
    """Print how often effects of some sizes are decided, with one deviation for all."""
    effects = (0.0, 0.005, 0.01, 0.02, 0.05)
    print(f"\ndecided in per cent of {sweeps:,} sweeps of {VARIANTS} variants, by the effect in per cent of perplexity")
    print("seeds  " + "  ".join(f"{100 * effect:5.1f}" for effect in effects) + "   (0: told as none)")
    for seeds in SEEDS:
        cells = []
        for effect in effects:
            rng, told, of = np.random.default_rng(seeds), 0, 0
            for _ in range(sweeps):
                comparison = judge(simulated(SETTINGS[0], seeds, rng, math.log1p(effect)))
                told += sum(e.verdict == ("raises" if effect else "equivalent") for e in comparison.effects.values())
                of += len(comparison.effects)
            cells.append(f"{100 * told / of:5.1f}")
        print(f"{seeds:5}  {'  '.join(cells)}", flush=True)


def looks_table(sweeps: int) -> None:
    """Print what seeds until decided find and cost, beside numbers of seeds that are fixed.

    Also a baseline of more seeds than its variants: it is in every comparison.
    """
    print(f"\ntrue effects decided, per cent of {sweeps:,} sweeps of {VARIANTS} variants, and trials a sweep")
    designs: dict[str, Callable[[list[Losses]], tuple[Comparison, int]]] = {
        "until decided": lambda sweep: list(in_looks(sweep))[-1],
    }
    for seeds in (3, 4, 5, 6, 7, 8):
        designs[f"{seeds} seeds"] = partial(_fixed, seeds, seeds)
    for baseline in (4, 6, 8):
        designs[f"3 seeds, the baseline {baseline}"] = partial(_fixed, baseline, 3)
    mixtures = {
        "4 none, 2 of 1%, 2 of 2%": (0, 0, 0, 0, 1, 1, 2, 2),
        "8 of 1%": (1,) * 8,
        "6 none, 2 of 1%": (0,) * 6 + (1, 1),
    }
    print(f"{'':26}" + "  ".join(f"{name:>26}" for name in mixtures))
    for design, judged in designs.items():
        cells = []
        for percents in mixtures.values():
            rng, decided, trials = np.random.default_rng(7), 0, 0
            truths = [math.log1p(percent / 100) for percent in percents]
            for _ in range(sweeps):
                sweep = simulated(SETTINGS[0], LOOKS.planned[-1], rng)
                sweep[1:] = [_shifted(losses, truth) for losses, truth in zip(sweep[1:], truths, strict=True)]
                comparison, cost = judged(sweep)
                trials += cost
                decided += sum(
                    comparison.effects[str(k)].verdict == "raises" for k, truth in enumerate(truths) if truth
                )
            cells.append(f"{100 * decided / sweeps / sum(map(bool, truths)):11.1f} for {trials / sweeps:5.1f} trials")
        print(f"{design:26}" + "  ".join(f"{cell:>26}" for cell in cells), flush=True)


def _fixed(baseline: int, variants: int, sweep: list[Losses]) -> tuple[Comparison, int]:
    judged = [first(losses, variants if k else baseline) for k, losses in enumerate(sweep)]
    return judge(judged), baseline + variants * (len(sweep) - 1)


def _shifted(losses: Losses, nats: float) -> Losses:
    assert losses.blocks is not None
    return Losses(losses.seeds, losses.nats + nats, losses.blocks + nats, losses.kind)


def tiny_spec(seed: int) -> TrainSpec:
    """A model of which a seed takes seconds."""
    return TrainSpec.model_validate(
        {
            "corpus": {"name": "pydoc", "train_tokens": 10_000},
            "model": {"layers": 1, "embedding_size": 24, "hidden_size": 48},
            "dropout": {"weight": 0.2, "output": 0.2},
            "bptt": {"kind": "variable", "length": 30},
            "optimizer": {"kind": "nt_asgd", "learning_rate": 10.0, "clip": 0.25},
            "batch_size": 10,
            "epochs": 3,
            "seed": seed,
        }
    )


def trained(folder: Path, seeds: int) -> Losses:
    """The model's losses with seeds 1 to `seeds`; those that the folder lacks are trained."""
    from lm.train import train

    reader, nats, blocks = TokenLossReader(), [], []
    for seed in range(1, seeds + 1):
        out = folder / f"{seed}"
        for _ in train(tiny_spec(seed), out=out):
            pass
        record = read_record(out)
        assert record is not None and record.status == "complete", f"seed {seed} is not complete"
        losses = reader.read(token_nats_path(out, "train", "test"), record.corpus.fingerprint)
        assert losses is not None
        nats.append(opened(record.stages[-1].test).nats_per_token)
        blocks.append(losses.blocks)
    return Losses(tuple(range(1, seeds + 1)), np.array(nats), np.array(blocks))


def dealt(pool: Losses, seeds: int, rng: np.random.Generator) -> list[Losses]:
    """A sweep of nine variants, their seeds drawn from the pool without replacement."""
    assert pool.blocks is not None
    drawn = rng.choice(pool.nats.size, (VARIANTS, seeds), replace=False)
    return [Losses(tuple(range(seeds)), pool.nats[row], pool.blocks[row]) for row in drawn]


def real_table(pool: Losses, sweeps: int) -> None:
    """Print what `error_table` does, of sweeps dealt from real records."""
    deviation = 100 * (perplexity_ratio(float(pool.nats.std(ddof=1))) - 1)
    print(
        f"a tiny model, {pool.nats.size} seeds (deviation {deviation:.2f}%), {sweeps:,} sweeps dealt a line; per cent"
    )
    print("seeds  error  coverage  together  half width")
    for seeds in SEEDS:
        if VARIANTS * seeds <= pool.nats.size:
            rng, tally = np.random.default_rng(seeds), Tally()
            for _ in range(sweeps):
                tally.add(judge(dealt(pool, seeds, rng)), 0.0)
            print(f"{seeds:5}  {tally.row()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--real", type=Path, metavar="DIR", help="where the records of real training lie, or will")
    parser.add_argument("--seeds", type=int, default=72, help="so many are trained for --real")
    asked = parser.parse_args()
    if asked.real is not None:
        real_table(trained(asked.real, asked.seeds), asked.sweeps)
        return
    error_table(asked.sweeps)
    design_table(asked.sweeps)
    stepped_table(asked.sweeps)
    power_table(max(1, asked.sweeps // 4))
    looks_table(max(1, asked.sweeps // 4))


if __name__ == "__main__":
    main()
