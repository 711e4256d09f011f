"""The recovery journal: what a server that is started again needs to go on. No ROS, no torch."""
