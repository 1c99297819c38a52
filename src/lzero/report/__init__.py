"""The only place that formats for people: tables, figures, pages."""
