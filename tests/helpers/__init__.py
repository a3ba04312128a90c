"""What the tests share: waiting for conditions, and buses that are really mounted and really go away."""
