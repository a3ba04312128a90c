#!/bin/sh
# A Python that Spark's workers start with: see interpreter.py.
set -f
IFS=:
path=
for place in ${PYTHONPATH-}; do
    case $place in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) path=${path:+$path:}$place ;;
    esac
done
PYTHONPATH=$path exec "$FUTEBUS_PYTHON" "$@"
