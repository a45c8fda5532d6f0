"""Commands for whoever runs, tests or releases Agenthost; nothing here is imported by the product."""
