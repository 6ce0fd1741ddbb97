"""Tell whether the server in this container is ready: exit code 0, else 1.

The image has no curl. Only what is imported at once is used, since this runs every few seconds.
"""

import socket
import sys

_PATIENCE = 4


def main(port: int) -> int:
    """Ask /readyz on the loopback interface."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            status = connection.makefile("rb").readline().split(b" ")
    except OSError as error:
        sys.stderr.write(f"/readyz: {error}\n")
        return 1
    ready = status[1:2] == [b"200"]
    if not ready:
        sys.stderr.write(f"/readyz: {b' '.join(status).decode(errors='replace').strip() or 'no answer'}\n")
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
