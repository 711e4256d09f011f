"""The dispatcher's node: it has the face of a plan server, and relays to several of them."""
