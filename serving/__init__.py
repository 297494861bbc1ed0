"""Serving: the endpoint, the embedded server, and TensorFlow Serving's images and configs. Knows nothing of load or reports."""
