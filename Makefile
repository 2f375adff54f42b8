# Tools, which the go command builds at exactly these versions. A name with the version is built anew when the version
# changes.
LINT_VERSION := v2.15.0
GOLANGCI_LINT := $(CURDIR)/bin/golangci-lint-$(LINT_VERSION)
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := $(CURDIR)/bin/gotestsum-$(GOTESTSUM_VERSION)

# The version of binary, image and chart. The file VERSION is its only place; tests compare the chart and the changelog.
TAG := $(shell cat VERSION)
# A compiler that collects its garbage rarely takes a fifth less CPU.
GO_BUILD := env GOGC=400 GOMEMLIMIT=2GiB go build -trimpath -ldflags "-s -w -X github.com/postern-dev/postern/cmd/postern/app.Version=$(TAG)"
BUILD := env CGO_ENABLED=0 $(GO_BUILD) -o bin/postern ./cmd/postern

# The platforms of the image, and those of the binaries of a release. RELEASE is the folder of the release.
IMAGE_PLATFORMS := linux-amd64 linux-arm64
RELEASE_PLATFORMS := $(IMAGE_PLATFORMS) darwin-amd64 darwin-arm64
RELEASE ?= bin/release
# The processor of this machine, which the image of make cluster is for.
ARCH = $(shell go env GOARCH)
# The time that is written where a time must be written: that of the commit.
MAKE_IMAGE := env SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct 2>/dev/null || echo 0) bin/image

# Flags of run and demo: PLUGINS=A,B replaces the plugins that the examples need, CONFIG is the path of an
# AdmissionConfiguration, and VERSION is the version of Kubernetes.
DEMO_FLAGS := $(if $(PLUGINS),-plugins=$(PLUGINS)) $(if $(CONFIG),-config=$(CONFIG)) $(if $(VERSION),-version=$(VERSION))

# The same flags everywhere, so that no package is compiled twice: make run compiles most packages of the tests. The
# target vet vets. Without the information for debuggers, a test binary is linked in less than half of the time.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -vet=off '-ldflags=-s -w')
# These programs find the sources beside their own.
WITH_SOURCES := -trimpath=false

# All Go modules of this repository that contain code. The modules that need a control plane or kube-apiserver's
# sources have their own targets. The target unit tests the other modules.
MODULES := $(sort $(filter-out %/controlplane/etcd %/controlplane/kubernetes %/controlplane/containerd, \
	$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*/*'))))
SPECIAL := ./test/controlplane ./test/e2e ./test/node ./test/parity
UNIT_MODULES := $(filter-out $(SPECIAL),$(MODULES))

# $(call gotest,module,flags of gotestsum,packages,flags of go test) tests packages of a module. gotestsum prints a line
# for each package, and in the end what failed and what was left out; it writes the time of each test to bin/times, and
# bin/gate the CPU time of each package. DETECT=-race turns the race detector on, which needs cgo, for the tests of both
# rings. -short leaves out those of the second one, see internal/ring.
SHORT := $(if $(DETECT),,-short)
TEST_NAME = $(subst /,-,$(patsubst ./%,%,$(patsubst .,root,$(1))))
gotest = cd $(1) && CGO_ENABLED=$(if $(DETECT),1,0) $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --no-color $(2) \
	--jsonfile-timing-events "$(CURDIR)/bin/times/$@-$(TEST_NAME).json" --packages "$(3)" -- \
	-count=1 $(DETECT) -exec "$(CURDIR)/bin/gate exec" $(flags-$(1)) $(4)
# The flags of modules that need some. Tests of a control plane mostly wait, so more of them run at the same time than
# there are processors. Each has its own.
flags-. := -p 6
flags-./test/parity := -timeout 30m
flags-./test/controlplane := $(WITH_SOURCES)
flags-./test/e2e := -p 1 -parallel 4 -timeout 30m

# The folder of the recorded decisions, the command line for the replay, and the plugins of bin/postern. The
# shell of the recipe runs bin/postern to list the plugins. The API server of a replay runs no plugins.
CONFORMANCE ?= ../shared/conformance
REPLAYED := {bin} serve --kubeconfig={kubeconfig} --bind-address=127.0.0.1 --secure-port={port} --health-bind-address= \
	--webhook-url=https://127.0.0.1:{port} --admission-control={plugin} --admission-control-config-file={config} \
	--cert-dir={dir} --feature-gates={featuregates} --api-server-plugins=none
# Postern serves kinds that were removed from Kubernetes in its own API groups.
REMAP := policy/PodSecurityPolicy=policy.postern.dev/v1/podsecuritypolicies/PodSecurityPolicy/cluster,settings.k8s.io/PodPreset=settings.postern.dev/v1alpha1/podpresets/PodPreset/namespaced
BUILT_PLUGINS := $$(bin/postern plugins -o name | paste -sd, -)

# Ignore a go.work in a parent folder.
export GOWORK := off

.DEFAULT_GOAL := help
.NOTPARALLEL:

##@ Try it

.PHONY: run
run: bin/demo ## Start a cluster with Postern, apply the examples, stay up [PLUGINS= CONFIG= VERSION=]
	@exec bin/demo -stay -dir .run $(DEMO_FLAGS) -- $(BUILD)

.PHONY: demo
demo: bin/demo ## The same, but stop; succeed if every example ended as its file says
	@exec bin/demo $(DEMO_FLAGS) -- $(BUILD)

# The go command decides whether bin/demo is up to date.
.PHONY: bin/demo
bin/demo:
	@go build -C test/demo $(WITH_SOURCES) -o "$(CURDIR)/$@" .

.PHONY: cluster
cluster: bin/linux-$(ARCH)/postern bin/image bin/helm bin/cluster ## A cluster with a real node, Postern from its image and chart, and the examples (Linux, root)
	$(MAKE_IMAGE) archive -version $(TAG) -to bin/cluster-image.tar $<
	@exec bin/cluster

# The go command decides whether they are up to date.
.PHONY: bin/cluster bin/node bin/helm
bin/cluster bin/node:
	@go build -C test/node $(WITH_SOURCES) -o "$(CURDIR)/$@" ./cmd/$(notdir $@)
bin/helm:
	@go build -C test/helm -o "$(CURDIR)/$@" helm.sh/helm/v3/cmd/helm

##@ Build and check

.PHONY: build
build: ## Build bin/postern
	$(BUILD)

# The three rings. The parts of a ring are targets of this file.
FIRST := build vet unit parity conformance e2e demo
SECOND := load soak
REST := make test-load adds what needs a quiet machine or minutes (45 min), make test-all the race detector, lint, a real node and more (hours).
# The budget of make test, in seconds of CPU time.
BUDGET := 700

.PHONY: test
test: bin/gate ## What a change needs to be trusted, 12 minutes on 2 processors; it ends with what it leaves out
	@exec bin/gate run $(GATE) -cpu $(BUDGET) -tested bin/tested -rest "$(REST)" $(FIRST)

.PHONY: test-load
test-load: bin/gate ## The second ring: what needs a quiet machine or minutes
	@exec bin/gate run $(SECOND)

.PHONY: test-all
test-all: ## Everything, as a release needs it: both rings, the race detector, lint, a real node, other tests of Kubernetes
	@$(MAKE) --no-print-directory test GATE=-strict
	@$(MAKE) --no-print-directory test-load lint verify tidy
	@$(MAKE) --no-print-directory unit e2e DETECT=-race
	@$(MAKE) --no-print-directory node upstream-quota fleet-simulation rollout-simulation
	@echo "make test-all has passed."

.PHONY: vet
# The tests compile the other modules, and lint vets them. Cold, vet would also look through all of their dependencies.
vet: ## The formatting and the order of go.mod of every module, and go vet of this one
	@files=$$(gofmt -l cmd pkg internal installer test examples) && { test -z "$$files" || { echo "vet: run gofmt -w on"; echo "$$files"; exit 1; }; }
	@go vet ./...
	@awk 'FNR == 1 || /^\)/ { block = 0 } /^require \(/ { getline; block = /\/\/ indirect/ } \
		block && NF && !/\/\/ indirect/ { print FILENAME ": " $$1 " is a direct requirement among the indirect ones"; bad = 1 } END { exit bad }' \
		$(MODULES:%=%/go.mod)

.PHONY: lint
# One process loads the packages of all modules once, except those of a module that requires newer libraries than the
# product: a workspace has one version of each library.
NEWER := ./installer/monitoring
lint: bin/go.work $(GOLANGCI_LINT) ## Test the rules of imports, and lint every module
	go test -count=1 -tags lint ./test/lint -linter $(GOLANGCI_LINT)
	GOWORK="$(CURDIR)/bin/go.work" $(GOLANGCI_LINT) run --allow-parallel-runners --config .golangci.yml $(patsubst %,%/...,$(filter-out $(NEWER),$(MODULES)))
	set -e; for module in $(NEWER); do (cd $$module && $(GOLANGCI_LINT) run --allow-parallel-runners --config "$(CURDIR)/.golangci.yml" ./...); done

$(GOLANGCI_LINT):
	GOBIN="$(CURDIR)/bin/new" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv bin/new/golangci-lint $@
$(GOTESTSUM):
	GOBIN="$(CURDIR)/bin/new" go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	mv bin/new/gotestsum $@

# The go command decides whether bin/gate is up to date.
.PHONY: bin/gate
bin/gate:
	@go build -o $@ ./test/gate

bin/go.work: $(MODULES:%=%/go.mod) Makefile
	@mkdir -p bin && rm -f $@ && GOWORK="$(CURDIR)/$@" go work init $(filter-out $(NEWER),$(MODULES))

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format every module
	@set -e; for module in $(MODULES); do echo "fmt $$module"; \
		(cd $$module && $(GOLANGCI_LINT) fmt --config "$(CURDIR)/.golangci.yml" ./...); done

.PHONY: generate generate-files
generate: generate-files ## Write what is generated, and the measured table of calls
	go run -C test/controlplane $(WITH_SOURCES) ./cmd/controlplane build
	go test -C test/e2e -run '^TestCalls$$' . -update
generate-files: # The chart has copies of the definitions.
	go test ./pkg/apis/settings/v1alpha1 -run '^TestDefinition$$' -update
	go test ./pkg/admissions -run '^Test(ReadmeTable|RegisteredRules)$$' -update
	go test ./cmd/postern/app -run '^TestHelpText$$' -update
	go test -C test/helm -run '^Test(ProgramFile|SchemaNamesPlugins|Definitions|Manifests|ChartVersion)$$' . -update

.PHONY: verify
# The unit tests compare each generated file, so make test finds a stale one too.
verify: ## Fail if make generate would change a file; make test compares the same files
	@before=$$(git diff | git hash-object --stdin); $(MAKE) --no-print-directory generate-files || exit 1; \
		test "$$before" = "$$(git diff | git hash-object --stdin)" || \
		{ git diff --stat; echo "verify: files were stale; make generate has written them"; exit 1; }

.PHONY: tidy
# It downloads the modules of other modules' tests.
tidy: ## Fail if go mod tidy would change a module
	@set -e; for module in $(MODULES); do (cd $$module && go mod tidy -diff) || { echo "tidy: run go mod tidy in $$module"; exit 1; }; done

.PHONY: unit
# The tests of installer/image build the program again, which takes seconds after the first build, and minutes before it.
# Some tests mostly wait, so more packages are tested at the same time than there are processors.
unit: build bin/gate $(GOTESTSUM) ## Unit tests [DETECT=-race]
	$(foreach module,$(UNIT_MODULES),@$(call gotest,$(module),,./...,$(SHORT))$(newline)	)

.PHONY: load
# These tests need a quiet machine, so one runs at a time.
load: build bin/gate $(GOTESTSUM)
	@command -v prometheus >/dev/null || \
		echo "load: there is no program prometheus, so InitialResources is NOT tested with a real Prometheus (Debian: apt-get install prometheus)"
	go run -C test/controlplane $(WITH_SOURCES) ./cmd/controlplane build
	$(foreach module,$(MODULES),@set -e; tests=$$(bin/gate second $(module)); set -- $$tests; [ $$# != 0 ] || exit 0; pattern=$$1; shift; \
		export POSTERN_BINARY="$(CURDIR)/bin/postern"; $(call gotest,$(module),,$$*,-p 1 -parallel 1 -timeout 40m -run "$$pattern")$(newline)	)

# An empty line, which ends a line of a recipe.
define newline


endef

.PHONY: fleet-simulation
fleet-simulation: ## 10,000 simulated fleets with faults: FleetQuota is never above its limit [SEEDS=]
	go test ./internal/fleetquota/ledger -run TestNeverAboveTheLimit -v -timeout 2h -seeds $(or $(SEEDS),10000)

.PHONY: rollout-simulation
rollout-simulation: ## 100,000 simulated rollouts with faults: every pair of replicas decides as it must [SEEDS=]
	go test ./pkg/registration -run TestManyRollouts -v -timeout 4h -seeds $(or $(SEEDS),100000)

.PHONY: parity
parity: bin/gate $(GOTESTSUM) ## The plugins' cases through kube-apiserver's own plugins
	@$(call gotest,./test/parity,,.,$(SHORT))

.PHONY: e2e
# A test that failed runs once more, alone, and is named in the end if it passes then.
e2e: build bin/gate $(GOTESTSUM) ## End-to-end tests with a real control plane [DETECT=-race]
	go run -C test/controlplane $(WITH_SOURCES) ./cmd/controlplane build
	@$(call gotest,./test/controlplane,,./...,$(SHORT))
	@export POSTERN_BINARY="$(CURDIR)/bin/postern"; \
		$(call gotest,./test/e2e,$(if $(DETECT),,--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test),./...,$(SHORT))

.PHONY: flake
# A busy loop ends with the shell of the recipe.
flake: flake-test build ## Ten times one test, beside a busy loop on each processor [PKG=./test/e2e RUN=TestX]
	@export POSTERN_BINARY="$(CURDIR)/bin/postern"; cd $(PKG) && { go test -list '^($(RUN))$$' . | grep -q '^Test' || { echo "flake: $(PKG) has no $(RUN)"; exit 2; }; }; \
		for i in $$(seq "$$(getconf _NPROCESSORS_ONLN)"); do sh -c "while kill -0 $$$$; do :; done" 2>/dev/null & done; \
		go test -count=10 $(flags-$(patsubst %/,%,$(PKG))) -timeout 2h -run '^($(RUN))$$' .

.PHONY: flake-test
flake-test:
	@test -n "$(PKG)" -a -n "$(RUN)" || { echo "flake: set PKG=./test/e2e RUN=TestX"; exit 2; }

.PHONY: node
node: $(if $(filter Linux,$(shell uname)),bin/node) ## Tests on a real node: the README's installation, exec, rollouts under load (Linux, root)
ifneq ($(shell uname),Linux)
	@echo "node: this is not Linux, so Postern is NOT tested on a real node"
else
	@bin/node packages
	@if bin/node check; then bin/node build && go test -C test/node $(WITH_SOURCES) -p 1 -timeout 60m ./...; \
		else echo "node: for these reasons, Postern is NOT tested on a real node"; fi
endif

.PHONY: upgrade
# The make commands in the test must not get the variables of this one's command line.
upgrade: ## Upgrade from the version of a commit to this one and roll back, under load, on a real node [FROM=commit] (Linux, root)
	@git rev-parse --verify --quiet "$(FROM)^{commit}" >/dev/null || { echo "upgrade: set FROM to a commit of this repository"; exit 2; }
	@test "$$(uname)" = Linux || { echo "upgrade: this needs Linux"; exit 2; }
	@$(MAKE) --no-print-directory bin/node
	@bin/node packages && bin/node check && bin/node build
	@from=$$(mktemp -d) && trap 'rm -rf "$$from"' EXIT && trap 'exit 1' INT TERM HUP && \
		git archive --output="$$from/sources.tar" "$(FROM)" && tar -x -C "$$from" -f "$$from/sources.tar" && unset MAKEFLAGS MAKELEVEL FROM && \
		POSTERN_FROM="$$from" go test -C test/node $(WITH_SOURCES) -count=1 -v -tags upgrade -run '^TestUpgrade$$' -timeout 90m ./installed

.PHONY: conformance
# kube-apiserver's NamespaceAutoProvision also creates a namespace for an access review in that namespace. The
# API server never calls Postern for access reviews, so two of the 748 writes are missing on purpose. A replay mostly waits
# for caches, so four run at a time.
conformance: $(if $(wildcard $(CONFORMANCE)/replayer),build) ## Replay recorded decisions of kube-apiserver [PLUGINS= CONFORMANCE=folder]
ifeq ($(wildcard $(CONFORMANCE)/replayer),)
	@echo "conformance: there is no $(CONFORMANCE), so the recorded decisions of kube-apiserver are NOT replayed"
else
	go build -C $(CONFORMANCE)/replayer -o "$(CURDIR)/bin/replay" .
	go run ./test/conformance -from $(CONFORMANCE)/cases -to bin/cases
	bin/replay -corpus bin/cases -bin "$(CURDIR)/bin/postern" -v -j 4 -min 1 -min-hard $(if $(PLUGINS),0.8,0.997) -remap $(REMAP) \
		-plugins "$(or $(PLUGINS),$(BUILT_PLUGINS))" -cmd '$(REPLAYED)'
	$(if $(PLUGINS),,go test -tags conformance -count=1 -run '^TestRecordings$$' ./test/review -recordings "$(CURDIR)/bin/cases")
endif

.PHONY: upstream-e2e
upstream-e2e: build bin/upstream ## Kubernetes' own tests with its plugins, with none, with Postern's [FOCUS=groups COLUMNS=]
	bin/upstream $(if $(FOCUS),-focus=$(FOCUS)) $(if $(COLUMNS),-columns=$(COLUMNS))

.PHONY: upstream-quota
upstream-quota: build bin/upstream ## Kubernetes' own tests of ResourceQuota, with Postern's plugin
	bin/upstream -focus=ResourceQuota -columns=postern

# The go command decides whether bin/upstream is up to date.
.PHONY: bin/upstream
bin/upstream:
	@go build -C test/upstream $(WITH_SOURCES) -o "$(CURDIR)/$@" .

.PHONY: soak
soak: ## Ten rollouts, ten CA rotations and five kills under a load of 200 creations a second
	go run -C test/controlplane $(WITH_SOURCES) ./cmd/controlplane build
	go test -C test/e2e -tags soak -run '^TestSoak$$' -v -timeout 25m .

.PHONY: bench
bench: ## The cost of a request, beside other webhooks, into docs/performance.md [BENCH_FLAGS=-quick]
	go run -C test/bench $(WITH_SOURCES) . $(or $(BENCH_FLAGS),-docs=../../docs)

##@ Release

.PHONY: image
image: $(IMAGE_PLATFORMS:%=bin/%/postern) bin/image ## Write the container image, for amd64 and arm64, to bin/postern-image.tar
	$(MAKE_IMAGE) archive -version $(TAG) -revision "$(shell git rev-parse HEAD 2>/dev/null)" -to bin/postern-image.tar \
		$(IMAGE_PLATFORMS:%=bin/%/postern)

.PHONY: push
push: push-image image ## Push the container image [IMAGE=registry/name:tag]
	bin/image push bin/postern-image.tar $(IMAGE)

# A prerequisite before the image, so that nothing is built without the variable. .NOTPARALLEL keeps the order.
.PHONY: push-image
push-image:
	@test -n "$(IMAGE)" || { echo "push: set IMAGE=registry/name:tag"; exit 2; }

.PHONY: release
release: image $(RELEASE_PLATFORMS:%=bin/%/postern) ## Write binaries, image, chart, manifest and checksums to bin/release [IMAGE= RELEASE=folder]
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	cp bin/postern-image.tar installer/flowcontrol.yaml $(RELEASE)
	set -e; for platform in $(RELEASE_PLATFORMS); do \
		cp bin/$$platform/postern $(RELEASE)/postern-$$platform; \
		$(MAKE_IMAGE) sbom -version $(TAG) -to $(RELEASE)/postern-$$platform.spdx.json bin/$$platform/postern; done
	$(MAKE_IMAGE) chart -version $(TAG) $(if $(IMAGE),-image $(IMAGE)) -to $(RELEASE)/postern-chart.tgz installer/helm/postern
	set -e; for file in installer/crds/*.yaml installer/postern.yaml installer/rbac.yaml; do cat $$file; echo ---; done | \
		sed 's#image: postern:dev#image: $(or $(IMAGE),postern:$(TAG))#' > $(RELEASE)/postern.yaml
	bin/image checksums $(RELEASE)

# The go command decides whether they are up to date.
.PHONY: bin/image $(RELEASE_PLATFORMS:%=bin/%/postern)
bin/image:
	@go build -C installer/image -o "$(CURDIR)/$@" .
$(RELEASE_PLATFORMS:%=bin/%/postern): bin/%/postern:
	env CGO_ENABLED=0 GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(GO_BUILD) -o $@ ./cmd/postern

##@ Other

.PHONY: clean
clean: ## Remove what was built here; the control plane's binaries stay in the cache
	rm -rf bin .run

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
