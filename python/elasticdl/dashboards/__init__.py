"""The dashboards: what they show, as `elasticdl dashboard` and Grafana draw it."""
