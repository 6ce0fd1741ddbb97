"""The small HTTP kernel: routes and what their handlers get, bodies, pages of lists, answers."""
