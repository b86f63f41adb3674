"""What importing says when it can't go on."""


class VectorsError(ValueError):
    """Vectors can't be used or read; the message says what is wrong, where, and what is accepted."""
