"""The life of a call that the server executes: admitted, approved, run, waiting, ended."""
