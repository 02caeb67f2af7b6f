"""Settings of a Spark session that builds small tables: it starts sooner, and compiles lightly."""

LIGHT_SESSION = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
