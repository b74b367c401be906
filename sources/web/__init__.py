"""Web sites as sources: a polite crawl that reads each page only when it has changed."""
