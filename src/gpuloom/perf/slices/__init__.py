"""How fast would a job be on each MIG slice: MISO's predictor, its training, its errors, and what was really seen."""
