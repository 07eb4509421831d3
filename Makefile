# mirrorless: "make" lists the targets.
#
# "go test ./..." needs only Go. The tests that need real Kafka (Java 17 and
# Maven), a DynamoDB emulator or AWS's SAM CLI (Python 3) are those that import
# kafkatest, ministacktest or samtest; they run only where MIRRORLESS_REAL is set,
# which "make test" does when it finds the tools. Their downloads are kept in .cache/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# The architecture of the functions; "GOARCH=arm64 sam build" for Graviton.
GOARCH ?= $(shell $(GO) env GOARCH)
# The properties file that is deployed with the functions.
CONFIG ?= mm2.properties
FUNCTIONS := topics mirror heartbeat checkpoint
LAMBDA_BUILD = CGO_ENABLED=0 GOOS=linux GOARCH=$(GOARCH) $(GO) build -tags lambda.norpc -trimpath -ldflags "-s -w"
LINTER := $(GO) tool -modfile=.ci/tools.mod
# RACE=-race runs the unit tests with the race detector, which needs a C compiler.
RACE ?=
# FULL=1 runs the stories on real Kafka in full length.
FULL ?=
FUZZTIME ?= 20s
# Of make torture: how long faults happen in each mode, the seed that repeats them
# (0 chooses one), and the mode in which records are copied: default, transactions,
# or all. PEER=1 does the same to MirrorMaker 2.
LENGTH ?= 3m
SEED ?= 0
MODE ?= all
PEER ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/mirrorless $(FUNCTIONS:%=bin/%/bootstrap) ## Build bin/mirrorless and the functions, bin/*/bootstrap

# Go knows better than make what is up to date.
.PHONY: FORCE
FORCE:

bin/mirrorless: FORCE
	$(GO) build -trimpath -o $@ ./cmd/mirrorless

bin/%/bootstrap: FORCE
	$(LAMBDA_BUILD) -o $@ ./functions/$*

.PHONY: demo
demo: bin/mirrorless ## Replicate between two embedded clusters, with Go alone (ARGS=--keep leaves it running)
	bin/mirrorless demo $(ARGS)

.PHONY: test
test: test-unit test-real ## Run all tests, those on real Kafka and DynamoDB where Java, Maven and Python are found

.PHONY: test-unit
test-unit: ## Run the tests that need only Go (RACE=-race for the race detector)
	MIRRORLESS_REAL= $(GO) test $(RACE) -shuffle=on ./...

# Stories that "make test" has no time for; "make test-more" runs them.
MORE := TestAFunctionsLife TestATargetUnderPressureTakesEachRecordOnce TestEachRightIsNeededAndNoMore \
	TestWhatIsOnBAlreadyIsTakenOver TestWhatAnEventCannotCarryIsCopied TestACommittedReadCopiesNothingThatWasAborted \
	TestVerifySaysWhereEachFaultIs
space := $(subst ,, )
MORE_PATTERN := ^($(subst $(space),|,$(strip $(MORE))))$$

# Two packages at a time, the stories from the beginning: they take as long as the rest.
.PHONY: test-real
test-real: ## Run the tests on real Kafka 4.3.1 and DynamoDB (FULL=1 in full length)
	@missing=; for tool in java mvn python3; do command -v $$tool >/dev/null || missing+=" $$tool"; done; \
	if [[ -n "$$missing" && "$${CI:-}" != true ]]; then \
		echo "Skipped the tests on real Kafka and DynamoDB, for want of$$missing (Debian: apt-get install default-jre-headless maven python3-venv)."; \
		exit; \
	fi; \
	packages=$$($(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | awk '{path = $$1; $$1 = ""} /(kafka|ministack|sam)test( |$$)/ {print path}'); \
	set -x; MIRRORLESS_REAL=$(if $(FULL),full,1) $(GO) test -count=1 $(if $(FULL),-p 1,-p 2 -skip '$(MORE_PATTERN)') -timeout 60m ./stories $$(grep -v '/stories$$' <<<"$$packages")

.PHONY: test-more
test-more: ## Run the stories of pressure, rights, take-overs, holes and seeded faults on real Kafka
	MIRRORLESS_REAL=1 $(GO) test -count=1 -v -timeout 30m -run '$(MORE_PATTERN)' ./stories

.PHONY: test-deploy
test-deploy: ## Follow docs/deploying.md and docs/upgrading.md word for word into an account on this machine
	MIRRORLESS_REAL=full $(GO) test -count=1 -v -timeout 15m -run '^TestTheDeployGuideFollowedWordForWord$$' ./stories

.PHONY: bench
bench: build ## Measure against MirrorMaker 2 on real Kafka (needs Java 17 and Maven)
	MIRRORLESS_REAL=full $(GO) test -count=1 -timeout 60m -run '^$$' -bench . -benchtime 1x $(ARGS) ./stories

.PHONY: torture
torture: ## Let everything happen that can on real Kafka (LENGTH=3m, SEED=, MODE=, PEER=1)
	MIRRORLESS_REAL=1 $(GO) test -count=1 -v -timeout 90m -run '^TestTorture$$' ./stories \
		-args -torture.length $(LENGTH) -torture.seed $(SEED) -torture.mode $(MODE) $(if $(PEER),-torture.peer)

.PHONY: fuzz
fuzz: ## Run every fuzz test for a short time (FUZZTIME=20s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's|/[^/]*:func | |' | sort -u | while read -r package name; do \
		echo "$$package $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package"; \
	done

.PHONY: lint
lint: ## Check format, vet, staticcheck, go fix and go.mod
	@unformatted=$$($(LINTER) gofumpt -l .); if [[ -n "$$unformatted" ]]; then echo "make fmt changes:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(LINTER) staticcheck ./...
	$(GO) fix -diff ./...
	$(GO) mod tidy -diff

# VULNDB is another copy of the database, as in file:///folder or https://host.
VULNDB ?=
.PHONY: vuln
vuln: ## Look for known vulnerabilities in what the code calls (asks vuln.go.dev, or VULNDB=URL)
	$(LINTER) govulncheck $(if $(VULNDB),-db $(VULNDB)) ./...

# SAM needs no account for what is done here.
SAM = SAM_CLI_TELEMETRY=0 AWS_EC2_METADATA_DISABLED=true .cache/template/bin/sam

.PHONY: template
template: .cache/template/.complete ## Check template.yaml and infra/ as CloudFormation sees them (needs Python 3)
	.cache/template/bin/python .ci/template.py lint template.yaml
	$(SAM) validate --region us-east-1

# Python's scripts know where they are, and a clone may bring its downloads along, or
# have moved.
.cache/template/.complete: FORCE
	@mkdir -p .cache
	@want="$$(python3 --version; cat .ci/requirements.txt; cd -P .cache; pwd)"; \
	if [[ "$$(cat $@ 2>/dev/null)" != "$$want" ]]; then \
		python3 -m venv --clear .cache/template; \
		.cache/template/bin/python -m pip install --quiet --disable-pip-version-check -r .ci/requirements.txt; \
		echo "$$want" >$@; \
	fi

.PHONY: local-aws
local-aws: ## Be an AWS account on this machine until Ctrl-C (needs Python 3; docs/deploying.md)
	@mkdir -p .cache
	@$(GO) build -trimpath -o bin/localaws ./localstack/localaws
	@exec bin/localaws -env .cache/local-aws.env

.PHONY: fmt
fmt: ## Format the code
	$(LINTER) gofumpt -w .

.PHONY: docs
docs: ## Write the generated pages of docs/ again
	$(GO) generate ./...

# An example: make invoke FUNCTION=mirror EVENT=events/msk.json. The function reads
# CONFIG; MIRRORLESS_TABLE and AWS's variables say where its state is.
FUNCTION ?= mirror
.PHONY: invoke
invoke: ## Run one function's bootstrap once with EVENT=file (FUNCTION=mirror)
	@$(if $(EVENT),,echo "make invoke EVENT=file [FUNCTION=mirror]" >&2; exit 2)
	@$(MAKE) --no-print-directory bin/$(FUNCTION)/bootstrap >&2
	@MIRRORLESS_CONFIG="$${MIRRORLESS_CONFIG:-$(abspath $(CONFIG))}" $(GO) run ./localstack/invoke bin/$(FUNCTION)/bootstrap $(EVENT)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .aws-sam

.PHONY: clean-cache
clean-cache: ## Remove what the tests have downloaded
	rm -rf .cache

# "sam build" calls these, one for each function of template.yaml, and says in its
# build.toml what the template's Architectures are. The environment has the last word,
# as in GOARCH=amd64 sam build.
SAM_ARCH = $(shell sed -n 's/^architecture = "\(.*\)"/\1/p' "$(ARTIFACTS_DIR)/../../build.toml" 2>/dev/null | head -n 1)
ifeq ($(origin GOARCH),file)
build-%Function: GOARCH = $(if $(filter x86_64,$(SAM_ARCH)),amd64,arm64)
endif
build-TopicsFunction: FUNCTION := topics
build-MirrorFunction: FUNCTION := mirror
build-HeartbeatFunction: FUNCTION := heartbeat
build-CheckpointFunction: FUNCTION := checkpoint
.PHONY: build-TopicsFunction build-MirrorFunction build-HeartbeatFunction build-CheckpointFunction
build-TopicsFunction build-MirrorFunction build-HeartbeatFunction build-CheckpointFunction:
	$(LAMBDA_BUILD) -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/$(FUNCTION)
	cp "$(CONFIG)" "$(ARTIFACTS_DIR)/mm2.properties"
