"""The ROS interface: the only room that imports rclpy.

Nodes, endpoints, conversions and clients belong here, and no decision about requests. A new message
field goes into `conversions.py`, a new parameter into `server/setup.py`, a new service or action
into `server`.
"""
