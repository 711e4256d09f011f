"""A node that does nothing: its sockets are those of DDS. It is run by its file name."""

import rclpy

if __name__ == "__main__":
    rclpy.init()
    node = rclpy.create_node("bare")
    print("ready", flush=True)
    rclpy.spin(node)
