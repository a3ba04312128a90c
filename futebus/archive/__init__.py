"""The application on the Spark format: channels become Parquet files, and figures on a channel."""
