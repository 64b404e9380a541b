"""The one address of a deployment: HTTP and gRPC in, a pool of servers for each service behind it."""
