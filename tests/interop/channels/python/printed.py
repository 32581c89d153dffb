"""Prints a credential message that comes from no broker: what a log would show of its secret fields."""

from credbroker.v1 import credbroker_pb2 as pb

credential = pb.Credential(generation="g-1", token="c4n4ry", client_key_data=b"c4n4ry")
print(str(credential).replace("\n", " "))
print(repr(credential).replace("\n", " "))
