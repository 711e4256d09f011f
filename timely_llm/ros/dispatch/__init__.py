"""The dispatcher's node: it has the interface of a plan server, and relays to several of them."""
