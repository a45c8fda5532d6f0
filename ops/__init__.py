"""Commands for operators and developers of Agenthost. The product imports nothing from here."""
