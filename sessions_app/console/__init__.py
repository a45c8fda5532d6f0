"""The console: web pages for the members of tenants."""
