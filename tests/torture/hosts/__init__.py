"""Torture of what joins several hosts: links, recorders that publish, deliveries. A bus each stands for a host."""
