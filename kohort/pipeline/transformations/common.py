"""What several transformations need."""

from typing import Final

GROUP: Final = ("cluster_id", "group")
