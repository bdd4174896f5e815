"""Read photos in shards: members of tar files, rows of Arrow and Parquet files."""
