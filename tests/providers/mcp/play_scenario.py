"""What a conformance suite starts as its client: has the test play a scenario, and waits until it has."""

import os
import socket
import sys

PORT, URL = sys.argv[1:]

with socket.create_connection(("127.0.0.1", int(PORT))) as test:
    scenario, context = os.environ["MCP_CONFORMANCE_SCENARIO"], os.environ.get("MCP_CONFORMANCE_CONTEXT", "")
    test.sendall(f"{scenario}\n{URL}\n{context}".encode())
    test.shutdown(socket.SHUT_WR)
    while test.recv(4096):
        pass
