"""SQL: from a query to a trained elastic model and back into a table.

Owns the language around a SELECT, the plan that it makes, the module that comes of it,
and the way of the rows: source, shards, statistics, registry. Called by `cli`; jobs are
run by `client`. Must not import TensorFlow or Keras, and never parses the SELECT.
"""
