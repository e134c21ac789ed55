"""Code shared by several APIs; contains no handlers."""
