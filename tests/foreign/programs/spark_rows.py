"""Runs a bundle on a data frame of Apache Spark, in two processes of Python."""

import json
import os
import sys


def main(request):
    from pyspark.sql import SparkSession

    from kerasformer.tools.integrations.columns import ColumnModel
    from kerasformer.tools.integrations.spark import in_pandas

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.createDataFrame(request["rows"], "id long, text string").repartition(2)
    schema = "id long, text string, result_label string, result_score double, error string"
    answered = frame.mapInPandas(in_pandas(ColumnModel(request["bundle"])), schema).orderBy("id").collect()
    spark.stop()
    return [row.asDict() for row in answered]


request = json.loads(sys.stdin.read())
sys.path.insert(0, request["package"])
os.environ["PYTHONPATH"] = request["package"]  # of Spark's processes
os.chdir(request["package"])  # which also look here first
os.environ["PYSPARK_PYTHON"] = sys.executable
print(json.dumps({"rows": main(request)}))
