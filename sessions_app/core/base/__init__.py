"""What every layer uses: errors, events, identifiers, the caller, access to the database. No rule about sessions."""
