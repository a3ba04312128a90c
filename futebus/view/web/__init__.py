"""A bus as a web page: `futebus-web`. See docs/web.md."""
