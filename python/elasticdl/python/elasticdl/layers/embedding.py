"""Classic place of the embedding layer (model/embedding.py).

Owns nothing. For user modules alone.
"""

from elasticdl.model.embedding import Embedding

__all__ = ["Embedding"]
