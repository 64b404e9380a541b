"""Requests to a deployment at times that were decided before."""
