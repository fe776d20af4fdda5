"""A sweep's report read as Arrow tables: a table of the variants, and a figure of their learning curves.

Run it in the repository, or cell by cell in an editor that knows `# %%`:

    python docs/examples/read_a_report.py reports/awd_ablation/laptop curves.svg
"""

# %% The report: a folder that `python -m orchestrator sweep` or `report` wrote
import sys

import matplotlib.pyplot as plt
import pyarrow.compute as pc

from orchestrator import load_report

folder, picture = (*sys.argv[1:], *["reports/awd_ablation/laptop", "curves.svg"][len(sys.argv) - 1 :])
report = load_report(folder)
print(report.summary.question)
print(report.summary.answer)

# %% A table: the trained variants, the best first (`.to_pandas()` makes a data frame, if pandas is installed)
table = report.table
table = table.filter(pc.invert(table["reference"])).sort_by("test_perplexity_mean")
for row in table.select(["variant", "seeds", "test_perplexity_mean", "verdict"]).to_pylist():
    print(f"{row['variant']:<40} {row['seeds']:>2} seeds  {row['test_perplexity_mean']:8.2f}  {row['verdict'] or ''}")

# %% A figure: validation perplexity by epoch, the mean over seeds that reached it
losses = report.curves.group_by(["variant", "epoch"]).aggregate([("valid_nats_per_token", "mean")]).sort_by("epoch")
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.set_prop_cycle(color=plt.colormaps["tab20"].colors)
for variant in table["variant"].to_pylist():
    curve = losses.filter(pc.equal(losses["variant"], variant))
    axes.plot(curve["epoch"], pc.exp(curve["valid_nats_per_token_mean"]), label=variant, linewidth=1)
axes.set(xlabel="epoch", ylabel="validation perplexity")
axes.legend(fontsize="x-small", ncols=2, frameon=False)
figure.savefig(picture)
print(f"{picture} written")
