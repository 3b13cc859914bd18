"""Runs a bundle in a pipeline of Apache Beam, on its direct runner."""

import json
import sys


def main(request):
    import apache_beam as beam
    from apache_beam.ml.inference.base import RunInference

    from kerasformer.tools.integrations.beam import BeamModel

    def write(results):
        with open(request["output"], "w") as file:
            for each in results:
                print(json.dumps({**each.example, **each.inference}), file=file)

    with beam.Pipeline(runner="DirectRunner") as pipeline:
        rows = pipeline | beam.Create(request["rows"])
        answered = rows | RunInference(BeamModel(request["bundle"], batch_size=4))
        answered | beam.combiners.ToList() | beam.Map(write)


request = json.loads(sys.stdin.read())
sys.path.insert(0, request["package"])
main(request)
print(json.dumps({"imported": sorted({"torch", "tensorflow", "keras"} & set(sys.modules))}))
