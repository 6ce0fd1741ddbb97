"""What a request asks for, with what came before it, made into the plan of a response."""
