"""The Keras module of a training, as text that a person would write and keep.

Called by `sql.generate`. Pure: plan and statistics in, text out.
"""
