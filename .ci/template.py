"""Checks template.yaml as CloudFormation will see it.

cfn-lint does not look into the properties of SAM's resources, so the template
is transformed first, as AWS does it, and the result is checked.

    .cache/template/bin/python .ci/template.py template.yaml

Needs aws-sam-translator and cfn-lint; "make template" installs them.
"""

import json
import os
import subprocess
import sys
import tempfile

# The transform asks for a region and takes it from here; nothing is called.
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.model.exceptions import InvalidDocumentException  # noqa: E402
from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402


class NoManagedPolicies:
    """Leaves names of AWS managed policies as they are, without asking IAM."""

    def load(self):
        return {}


def transformed(path):
    with open(path, encoding="utf-8") as file:
        template = yaml_parse(file.read())
    # "sam package" would put the code into a bucket.
    places = [template.get("Globals", {}).get("Function", {})]
    places += [r.get("Properties", {}) for r in template["Resources"].values() if r["Type"] == "AWS::Serverless::Function"]
    for place in places:
        if isinstance(place.get("CodeUri"), str):
            place["CodeUri"] = "s3://bucket/key"
    return transform(template, {}, NoManagedPolicies())


def main():
    path = sys.argv[1]
    try:
        result = transformed(path)
    except InvalidDocumentException as error:
        for cause in error.causes:
            print(f"{path}: {cause.message}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "transformed.json")
        with open(output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2, sort_keys=True, default=str)
        lint = [os.path.join(os.path.dirname(sys.executable), "cfn-lint"), "--regions", "us-east-1", "--", output]
        return subprocess.run(lint, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
