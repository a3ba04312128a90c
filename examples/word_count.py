"""Counts the words of a channel while they come.

In three shells:

    mkdir -p /tmp/bus; futebus -f /tmp/bus      # a bus, until Ctrl-C
    python examples/word_count.py /tmp/bus      # this; it says when it listens
    echo 'to be or not to be' > /tmp/bus/B_words

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

USAGE = "usage: word_count.py BUS, the directory where a bus is mounted"

if sys.argv[1:] in (["-h"], ["--help"]):
    print(USAGE)
    sys.exit()
if len(sys.argv) != 2:
    sys.exit(USAGE)
bus = sys.argv[1]
try:
    client.subscribe(f"{bus}/B_words").close()  # which makes the channel; Spark, told of no bus, would say so in pages
except client.ClientError as error:
    sys.exit(f"word_count.py: {error}")

spark = SparkSession.builder.appName("word count").config("spark.sql.shuffle.partitions", 2).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

with tempfile.TemporaryDirectory() as spool:
    # Lines go from the channel into files first, so that Spark can read them again when it has to.
    lines = spark.readStream.format("futebus").option("spoolLocation", f"{spool}/B_words").load(f"{bus}/B_words")

    words = lines.select(F.explode(F.split(F.lower("value"), r"\W+")).alias("word")).where("word != ''")
    counts = words.groupBy("word").count().orderBy(F.desc("count"), "word")

    query = counts.writeStream.outputMode("complete").format("console").start()
    try:
        futebus.spark.joined(query)
        print(f"what is written to {bus}/B_words is counted from now on", flush=True)
        while query.isActive:  # awaitTermination, interrupted by Ctrl-C, prints pages
            time.sleep(0.5)
        query.awaitTermination()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # spark-submit's Java gets the Ctrl-C too, and may have ended
            query.stop()
