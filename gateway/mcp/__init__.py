"""MCP: tools for language models over stdio and HTTP, and their entries in the files of hosts."""
