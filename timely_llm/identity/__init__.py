"""Keys of agents: signatures of their messages, and the checks of a server.

What a signature covers, how a key is kept, and which signed message is taken belong here, without
ROS. The room `ros` reads the fields of messages. A message is signed by HMAC-SHA256 with the key of
its agent, over all of its fields, a counter and the challenge that the server drew at its start.
The server signs what it sends to an agent with the same key.
"""
