"""Which data sets are built in, and which formats can be written.

Owns these names. Read by the command line, which has to start at once, and by the
modules that do the work. Must not import anything heavy.
"""

from __future__ import annotations

from elasticdl.job.spec.kinds import DataFormat

FROM_SKLEARN = ("digits", "breast_cancer", "wine")
FROM_KERAS = ("mnist", "fashion_mnist", "cifar10")
NAMES = FROM_SKLEARN + FROM_KERAS
EMPLOYEE = "employee"  # a table for SQL, no folder of records
IMAGES = ("digits", *FROM_KERAS)

WRITABLE = (DataFormat.RECORDIO, DataFormat.TFRECORD, DataFormat.PARQUET)
DEFAULT_SHARE = 0.2  # of test records, where a data set has no test part of its own
