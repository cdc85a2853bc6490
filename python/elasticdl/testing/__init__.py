"""Whole jobs under test and the faults they are put through; part of the product."""
