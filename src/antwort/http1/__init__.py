"""The one HTTP/1.1 client, on httptools: model servers, the operator's services and strangers' hosts are asked by it.

It has the limits that hold for all of them: what an answer may have of heads, interim answers, trailers and framing.
"""
