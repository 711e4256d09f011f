"""Starting nodes as child processes that end with their parent, and reading what they write."""
