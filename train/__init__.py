"""Training: the data set, the CNN by depth, the recipe and the training record. Knows nothing of serving or load."""
