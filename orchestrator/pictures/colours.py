"""The colours of every picture."""

# Paul Tol's "muted" scheme: nine colours told apart with every common kind of colour blindness.
COLOURS = ("#CC6677", "#332288", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#DDCC77")
GREY = "#8c8c8c"
# Of a change in perplexity: rose and indigo differ in hue for every eye, and in lightness without colour.
HURTS, HELPS = COLOURS[0], COLOURS[1]
