"""The Text Message Bus: peers that speak TCP, subscribe to categories, and share a B channel with those on the bus.

Who knows what: `lines` what peers send, `commands` what they may ask for, `subscriptions` what somebody wants to hear, `outbox`
what waits for him, `sorting` who is to get a message, `channel` the way to the bus and back, `connection` one peer, `server` all
of them, `tls` who is let in.
"""
