"""What the tests stand on: a running server, real tools, real pages."""
