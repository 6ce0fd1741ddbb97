"""The functions of the server for clients of the Model Context Protocol, over HTTP and over standard streams."""
