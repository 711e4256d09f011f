"""The ROS face: the only place that knows rclpy."""
