"""Load: the plan and its cells, arrivals, channels, samples and their validity. Knows nothing of how models were made."""
