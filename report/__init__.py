"""Reports: what a run folder says, as HTML, CSV and text, and runs compared. Imports neither gRPC nor TensorFlow."""
