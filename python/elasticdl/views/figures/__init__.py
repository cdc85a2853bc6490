"""Charts of jobs and of Prometheus' answers, as figures of plotly.

Used by the report and by the dashboard page. Knows neither pages nor servers.
"""
