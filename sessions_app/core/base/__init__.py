"""Used by every layer: errors, events, identifiers, the caller, database access. No rule about sessions is here."""
