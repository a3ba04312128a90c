"""The page of futebus-web in a browser: `scripts/test page`. Plain pytest leaves these out, since they want one."""
