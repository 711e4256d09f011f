"""The policy `deadline`: plans and streams by their due times."""
