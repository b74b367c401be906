"""Access to the gateway: API keys, rights, rate limits and sessions."""
