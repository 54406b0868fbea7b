"""vtkit moves a learned sparse retrieval encoder onto the vocabulary its user needs."""

__version__ = "0.1.0"
