"""HTTP/1.1 on sockets: connections, requests and answers, between bytes and ASGI."""
