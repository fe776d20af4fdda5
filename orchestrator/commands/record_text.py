"""A record as text to read: what became of it, its stages, where it ran, and its spec."""

from __future__ import annotations

from collections.abc import Iterator

from lm.record import Record
from lm.yaml_text import write_yaml
from orchestrator.trials.spec_words import in_short
from orchestrator.words import counted, duration


def record_text(record: Record) -> str:
    """Everything of a record, for people."""
    return "\n".join(_lines(record))


def _lines(record: Record) -> Iterator[str]:
    yield f"{record.key}  {in_short(record.spec)}"
    yield f"{record.status}, {record.finished_at}, {duration(record.seconds)}, {record.tokens_per_second:,.0f} tokens/s"
    if record.reason is not None:
        yield f"reason: {record.reason}"
    if record.divergence is not None:
        yield f"divergence: {record.divergence.model_dump_json()}"
    for stage in record.stages:
        scores = [("validation", stage.valid), *([("test", stage.test)] if stage.test else [])]
        exact = ", ".join(f"{score.perplexity:.4f} {split}" for split, score in scores)
        theirs = ", ".join(f"{score.perplexity_reference:.4f}" for _, score in scores)
        closed = "" if stage.test else "; test was not opened"
        yield f"{stage.name} ({stage.key}): perplexity {exact}; by the authors' convention {theirs}{closed}"
        ended = ", stopped early" if stage.stopped_early else ""
        average = f", averaging from epoch {stage.averaging_from_epoch}" if stage.averaging_from_epoch else ""
        yield (
            f"  {counted(stage.epochs, 'epoch')}, best {stage.best_epoch}{average}{ended}; "
            f"{counted(stage.steps, 'step')}; {duration(stage.train_seconds)} training, "
            f"{duration(stage.evaluation_seconds)} evaluation"
        )
        if stage.cache is not None:
            cache = stage.cache
            yield f"  cache: window {cache.window}, weight {cache.weight:g}, flatness {cache.flatness:g}"
        for split, measures in (("fitted on validation", stage.fitted), *stage.measures.items()):
            if measures:
                yield f"  {split}: " + ", ".join(f"{name} {value:g}" for name, value in measures.items())
    yield f"parameters: {record.parameters:,}"
    if record.head_cost is not None:
        yield f"head cost: {record.head_cost}"
    if record.codebook is not None:
        yield f"codebook: {record.codebook}"
    corpus = record.corpus
    yield (
        f"corpus: {corpus.name}, {corpus.train_tokens:,} training, {corpus.valid_tokens:,} validation, "
        f"{corpus.test_tokens:,} test tokens, {corpus.vocabulary_size:,} words ({corpus.vocabulary_rule})"
    )
    yield f"fingerprint: {corpus.fingerprint}"
    threads = counted(record.threads, "thread")
    yield f"device: {record.device}, {threads}, peak memory {record.peak_memory_bytes / 2**20:,.0f} MiB"
    yield f"versions: {', '.join(f'{name} {version}' for name, version in record.versions.items()) or 'unknown'}"
    yield f"commit: {record.commit or 'unknown'}; numerics version {record.numerics_version}"
    yield "spec:"
    spec = write_yaml(record.spec.model_dump(mode="json"))
    yield from (f"  {line}" for line in spec.splitlines())
