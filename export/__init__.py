"""Export: a verified SavedModel version of a trained model, with warm-up requests. Knows nothing of how it is served."""
