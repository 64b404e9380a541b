"""Requests to a deployment at times that were decided before."""

ADDRESSES = "http://HOST:PORT/v2/models/NAME/infer or grpc://HOST:PORT/NAME"
"""What may be asked instead of a deployment of ours. Here, so that the help of a command need not load the rest."""
