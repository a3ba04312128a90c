"""`futebus-top`: buses in a terminal, looked at once a second.

`sights` looks, `columns` says what is shown of what was seen; `plain` prints it, and `app` with what it stands on draws it.
Only `app` and its `screens`, `said`, `base`, `widgets` and `driver` know Textual.
"""
