"""What experiments report: metrics, timelines, tables and run documents."""
