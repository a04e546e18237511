"""One evaluator per file, all behind the interface in `composition.evaluator`."""
