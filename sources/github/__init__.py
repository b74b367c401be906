"""Issues and pull requests of GitHub as sources: each thread is a conversation."""
