"""The dashboards in a small web page, drawn from any Prometheus, without Grafana.

`server` answers the browser, `boards` finds dashboards and panels, `prometheus`
asks, `variables` fills in what a query leaves open, `drawing` makes what is shown.
"""
