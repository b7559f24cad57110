"""Prints two addresses on loopback that are free now."""

import socket

sockets = [socket.socket(), socket.socket()]
for each in sockets:
    each.bind(("127.0.0.1", 0))
print(*(f"127.0.0.1:{each.getsockname()[1]}" for each in sockets))
