"""What people see: terminal, pages, reports, dashboards."""
