"""Says on a channel when a number is far from the others.

Many programs report numbers on U_numbers, as lines `KEY NUMBER`. For each key and each five seconds, the mean and the deviation
are computed. If the largest number is far from the mean, a line goes to B_alerts.

In four shells:

    mkdir -p /tmp/bus; futebus -f /tmp/bus      # a bus, until Ctrl-C
    python examples/alerts.py /tmp/bus          # this; it says when it listens
    cat /tmp/bus/B_alerts
    while sleep 0.1 && echo "disk $((RANDOM % 10))"; do :; done > /tmp/bus/U_numbers

and, in a fifth one, now and then:

    echo 'disk 100' > /tmp/bus/U_numbers

It needs pyspark, pyarrow and Java 17: pip install '.[spark]' in the tree of futebus. In an environment that is
activated, spark-submit runs it as well as python does.
"""

import contextlib
import sys
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

import futebus.spark  # (before there is a session: so Spark's processes find futebus as this one does)
from futebus import client

LEAST = 10
"""How many numbers it takes to judge one."""

FAR = 2.5
"""How many deviations from the mean are far."""

USAGE = "usage: alerts.py BUS, the directory where a bus is mounted"

if sys.argv[1:] in (["-h"], ["--help"]):
    print(USAGE)
    sys.exit()
if len(sys.argv) != 2:
    sys.exit(USAGE)
bus = sys.argv[1]
try:
    client.subscribe(f"{bus}/B_alerts").close()  # which makes the channel; Spark, told of no bus, would say so in pages
except client.ClientError as error:
    sys.exit(f"alerts.py: {error}")

spark = SparkSession.builder.appName("alerts").config("spark.sql.shuffle.partitions", 2).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

with tempfile.TemporaryDirectory() as state:
    # As the master of the channel, Spark misses nothing: who writes waits when Spark is behind.
    lines = (
        spark.readStream.format("futebus")
        .option("spoolLocation", f"{state}/U_numbers")
        .option("master", "true")
        .load(f"{bus}/U_numbers")
    )

    numbers = lines.select(
        "timestamp",
        F.split_part("value", F.lit(" "), F.lit(1)).alias("key"),
        F.split_part("value", F.lit(" "), F.lit(2)).try_cast("double").alias("number"),
    ).where("number IS NOT NULL")

    # A window is judged when it is over, which later lines show.
    windows = (
        numbers.withWatermark("timestamp", "1 second")
        .groupBy(F.window("timestamp", "5 seconds"), "key")
        .agg(
            F.count("number").alias("count"),
            F.avg("number").alias("mean"),
            F.stddev("number").alias("deviation"),
            F.max("number").alias("largest"),
        )
    )
    alerts = windows.where((F.col("count") >= LEAST) & (F.col("largest") > F.col("mean") + FAR * F.col("deviation"))).select(
        F.format_string(
            "%s: %.1f is far from %.1f, the mean of %d numbers since %s",
            "key",
            "largest",
            "mean",
            "count",
            F.date_format("window.start", "HH:mm:ss"),
        ).alias("value")
    )

    query = (
        alerts.writeStream.outputMode("append")
        .format("futebus")
        .option("checkpointLocation", f"{state}/checkpoint")
        .start(f"{bus}/B_alerts")
    )
    try:
        futebus.spark.joined(query)
        print(f"numbers on {bus}/U_numbers are looked at from now on", flush=True)
        while query.isActive:  # awaitTermination, interrupted by Ctrl-C, prints pages
            time.sleep(0.5)
        query.awaitTermination()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # spark-submit's Java gets the Ctrl-C too, and may have ended
            query.stop()
