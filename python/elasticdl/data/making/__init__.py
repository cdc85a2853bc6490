"""Data sets made: built-in ones, conversion, preparation, a look at what is there."""
