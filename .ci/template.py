"""Checks the templates as CloudFormation will see them, or shows them so.

cfn-lint does not look into the properties of SAM's resources, so template.yaml is
transformed first, as AWS does it, and the result is checked, as are the stacks within
the stack.

    .cache/template/bin/python .ci/template.py lint template.yaml
    .cache/template/bin/python .ci/template.py show template.yaml

"show" prints one JSON object, with a template for each file. Needs aws-sam-translator
and cfn-lint; "make template" installs them.
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


def templates(path):
    """The template that a file becomes, and those of the stacks within it, by path."""
    with open(path, encoding="utf-8") as file:
        template = yaml_parse(file.read())
    found = {}
    # "sam package" would put the code and the inner templates into a bucket.
    places = [template.get("Globals", {}).get("Function", {})]
    places += [r.get("Properties", {}) for r in template["Resources"].values() if r["Type"] == "AWS::Serverless::Function"]
    for place in places:
        if isinstance(place.get("CodeUri"), str):
            place["CodeUri"] = "s3://bucket/key"
    for resource in template["Resources"].values():
        inner = resource.get("Properties", {}).get("TemplateURL")
        if resource["Type"] == "AWS::CloudFormation::Stack" and isinstance(inner, str):
            found.update(templates(os.path.join(os.path.dirname(path), inner)))
            resource["Properties"]["TemplateURL"] = "https://bucket.s3.amazonaws.com/" + inner
    if "Transform" in template:
        template = transform(template, {}, NoManagedPolicies())
    return {path: template, **found}


def lint(found):
    with tempfile.TemporaryDirectory() as folder:
        outputs = []
        for path, template in found.items():
            outputs.append(os.path.join(folder, path.replace(os.sep, "-") + ".json"))
            with open(outputs[-1], "w", encoding="utf-8") as file:
                json.dump(template, file, indent=2, sort_keys=True, default=str)
        command = os.path.join(os.path.dirname(sys.executable), "cfn-lint")
        return subprocess.run([command, "--regions", "us-east-1", "--", *outputs], check=False).returncode


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("lint", "show"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = templates(sys.argv[2])
    except InvalidDocumentException as error:
        for cause in error.causes:
            print(f"{sys.argv[2]}: {cause.message}", file=sys.stderr)
        return 1
    if sys.argv[1] == "lint":
        return lint(found)
    json.dump(found, sys.stdout, indent=2, sort_keys=True, default=str)
    return 0


if __name__ == "__main__":
    sys.exit(main())
