"""A text that comes in pieces."""

import io


class Pieces(io.StringIO):
    """Collects the pieces of a text. It costs no more than the text is long, however small they are."""

    add = io.StringIO.write
    text = io.StringIO.getvalue

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return self.tell() > 0
