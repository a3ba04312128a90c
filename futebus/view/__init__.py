"""What people see of buses: in a terminal and in a browser. It looks at `_stat.json`, as any program may."""
