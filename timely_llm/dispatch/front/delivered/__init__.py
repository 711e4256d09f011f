"""What the client of a request has got, and how its request goes on at another server."""
