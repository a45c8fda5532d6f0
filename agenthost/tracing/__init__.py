"""Exports spans to a collector by OpenTelemetry's protocol (OTLP over HTTP); ``agents_app.tracing`` makes them."""
