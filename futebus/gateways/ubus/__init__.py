"""ubus, the Unix Stream Bus: channels as its sockets, and its scripting interface.

What a ubus is called a bus here is a socket in the file system. The bus that futebus mounts has channels.
"""
