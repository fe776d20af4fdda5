"""What the losses by token that trials leave say beside their mean; free of torch, so that reports can read it."""
