"""Which trials cost the same a step."""

from __future__ import annotations

from lm.spec import Adam, Dropout, NtAsgd, Penalties, Sgd, TrainSpec, VariableBptt


def measured_spec(spec: TrainSpec) -> TrainSpec:
    """The spec with everything replaced that changes neither the time nor the memory of a step.

    Seed, epochs, fine-tuning, the cache and all rates go; a probability or coefficient counts by whether there is one,
    since a mask costs time whatever share it drops. Adam keeps two moments, NT-ASGD an average; all other optimizers
    are SGD at some rate.
    """
    optimizer = spec.optimizer
    rate, decay, clip = 1e-3, 1e-6 if optimizer.weight_decay else 0.0, None if optimizer.clip is None else 0.25
    dropped = {name: 0.5 if value else 0.0 for name, value in spec.dropout if name != "shared_mask"}
    penalties = spec.penalties
    same_step: dict[str, object] = {
        "dropout": Dropout(**dropped, shared_mask=spec.dropout.shared_mask),
        "penalties": penalties and Penalties(activation=1.0, temporal_activation=1.0),
        "epochs": 1,
        "legs": (),
        "early_stop": None,
        "finetune": None,
        "cache": None,
        "loss_reduction": "mean",
        "seed": 1,
    }
    # An average costs its memory also where only fine-tuning keeps one.
    if optimizer.kind == "nt_asgd" or (spec.finetune is not None and optimizer.kind != "adam"):
        same_step["optimizer"] = NtAsgd(kind="nt_asgd", learning_rate=rate, weight_decay=decay, clip=clip)
    elif optimizer.kind == "adam":
        same_step["optimizer"] = Adam(kind="adam", learning_rate=rate, weight_decay=decay, clip=clip)
    else:
        same_step["optimizer"] = Sgd(kind="sgd", learning_rate=rate, weight_decay=decay, clip=clip)
    if isinstance(spec.bptt, VariableBptt):
        same_step["bptt"] = spec.bptt.model_copy(update={"rescale": True})
    return spec.model_copy(update=same_step)
