"""Makes what follows from the code: pages, files of the chart, dashboards for Grafana.

For those who change ElasticDL, not for those who use it: no part of the package. `make
docs` runs it, `make check` compares.
"""
