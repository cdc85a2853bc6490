"""Synchronous steps of a group of workers, without parameter servers.

`protocol` decides, `wire` and `links` carry bytes, `group` puts them together. Must not
import TensorFlow, and must not know tasks, leases or Keras.
"""
