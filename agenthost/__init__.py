"""The outermost layer: settings, URLs, ASGI layers and processes. No other package imports it."""
