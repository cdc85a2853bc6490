"""The dashboards in a small web page, drawn from any Prometheus, without Grafana.

`server` answers the browser, `boards` reads the committed dashboards, `prometheus`
asks, `variables` fills in what a query leaves open, `drawing` makes what is shown.
"""
