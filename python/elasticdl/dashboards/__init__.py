"""The dashboards: what they show, and the JSON that Grafana and `elasticdl` draw."""
