"""From a file to pieces that can be found: reading documents, in a process apart, and cutting them into chunks.

Nothing is imported here: the process that reads a file starts anew for each, and has to be quick.
"""
