#!/bin/sh
# A Python that Spark's workers start with: see interpreter.py.
set -f
IFS=:
_futebus_path=
for _futebus_place in ${PYTHONPATH-}; do
    case $_futebus_place in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) _futebus_path=${_futebus_path:+$_futebus_path:}$_futebus_place ;;
    esac
done
PYTHONPATH=$_futebus_path exec "${FUTEBUS_PYTHON:-python3}" "$@"
