"""Strategy parameterServer: pull, step, push."""
