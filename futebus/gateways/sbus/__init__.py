"""The server end of sbus: routed messages over SOCK_SEQPACKET sockets of the machine, which a B channel can join."""
