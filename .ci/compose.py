"""Checks localstack/compose.yaml against the Compose schema, without Docker.

    .cache/template/bin/python .ci/compose.py localstack/compose.yaml

Prints what is wrong, one line each, and nothing if all is well. Docker would start what
the schema allows on every address of the machine; that is looked for as well. Needs what
aws-sam-cli brings: PyYAML and jsonschema.
"""

import json
import os
import sys

import jsonschema
import yaml


def faults(compose, schema):
    """Sentences about a file that is read."""
    jsonschema.Draft7Validator.check_schema(schema)
    for error in jsonschema.Draft7Validator(schema).iter_errors(compose):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
    for name, service in compose.get("services", {}).items():
        if not isinstance(service, dict):
            continue
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                yield f"services.{name}: port {port} is open to other machines"
        if "network_mode" in service:
            yield f"services.{name}: its network is {service['network_mode']}, in which ports are not looked at"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        compose = yaml.safe_load(file)
    with open(os.path.join(os.path.dirname(__file__), "../localstack/testdata/compose-spec.json"), encoding="utf-8") as file:
        schema = json.load(file)
    found = list(faults(compose, schema))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
