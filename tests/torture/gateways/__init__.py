"""The torture of the gateways: peers of all kinds of them, honest ones and others, and what becomes of them."""
