"""How fast it would go: pure functions and small fitted models, each with its stated error."""
