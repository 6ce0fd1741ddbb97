"""How a response is made: turns of the model, the calls between them, and its end."""
