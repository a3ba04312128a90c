"""Everything at once, everybody killed, and every line looked at. Short forms are tests; scripts/torture has the long ones."""
