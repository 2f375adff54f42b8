# Tools, each run by the go command at exactly this version.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The version that this build reports.
TAG := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO_BUILD := go build -trimpath -ldflags "-s -w -X github.com/postern-dev/postern/cmd/postern/app.Version=$(TAG)"
BUILD := env CGO_ENABLED=0 $(GO_BUILD) -o bin/postern ./cmd/postern

# The platforms of the image, and those of the binaries of a release. RELEASE is the folder of the release.
IMAGE_PLATFORMS := linux-amd64 linux-arm64
RELEASE_PLATFORMS := $(IMAGE_PLATFORMS) darwin-amd64 darwin-arm64
RELEASE ?= bin/release
# The time that is written where a time must be written: that of the commit.
MAKE_IMAGE := env SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct 2>/dev/null || echo 0) bin/image

# Flags of run and demo: PLUGINS=A,B replaces the plugins that the examples need, CONFIG is the path of an
# AdmissionConfiguration, and VERSION is the version of Kubernetes.
DEMO_FLAGS := $(if $(PLUGINS),-plugins=$(PLUGINS)) $(if $(CONFIG),-config=$(CONFIG)) $(if $(VERSION),-version=$(VERSION))

# All Go modules of this repository that contain code. The modules that need a control plane or kube-apiserver's
# sources have their own targets. The target unit tests the other modules.
MODULES := $(sort $(filter-out %/controlplane/etcd %/controlplane/kubernetes %/controlplane/containerd, \
	$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*/*'))))
SPECIAL := ./test/controlplane ./test/e2e ./test/node ./test/parity
UNIT_MODULES := $(filter-out $(SPECIAL),$(MODULES))

# The folder of the recorded decisions, the command line for the replay, and the plugins of bin/postern. The
# shell of the recipe runs bin/postern to list the plugins. The API server of a replay runs no plugins.
CONFORMANCE ?= ../shared/conformance
REPLAYED := {bin} serve --kubeconfig={kubeconfig} --bind-address=127.0.0.1 --secure-port={port} --health-bind-address= \
	--webhook-url=https://127.0.0.1:{port} --admission-control={plugin} --admission-control-config-file={config} \
	--cert-dir={dir} --feature-gates={featuregates} --api-server-plugins=none
# Postern serves kinds that were removed from Kubernetes in its own API groups.
REMAP := policy/PodSecurityPolicy=policy.postern.dev/v1/podsecuritypolicies/PodSecurityPolicy/cluster,settings.k8s.io/PodPreset=settings.postern.dev/v1alpha1/podpresets/PodPreset/namespaced
BUILT_PLUGINS := $$(bin/postern --help | sed -n 's/.* Plugins: \(.*\)\.$$/\1/p' | tr -d ' ')

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
	@go build -C test/demo -o "$(CURDIR)/$@" .

.PHONY: cluster
cluster: image bin/helm bin/cluster ## A cluster with a real node, Postern from its image and chart, and the examples (Linux, root)
	@exec bin/cluster

# The go command decides whether they are up to date.
.PHONY: bin/cluster bin/node bin/helm
bin/cluster bin/node:
	@go build -C test/node -o "$(CURDIR)/$@" ./cmd/$(notdir $@)
bin/helm:
	@go build -C test/helm -o "$(CURDIR)/$@" helm.sh/helm/v3/cmd/helm

##@ Build and check

.PHONY: build
build: ## Build bin/postern
	$(BUILD)

.PHONY: test
test: lint unit parity conformance e2e node demo ## Everything that has to pass

.PHONY: lint
lint: ## Lint every module
	@set -e; for module in $(MODULES); do echo "lint $$module"; \
		(cd $$module && go run $(GOLANGCI_LINT) run --allow-parallel-runners --config "$(CURDIR)/.golangci.yml" ./...); done

.PHONY: fmt
fmt: ## Format every module
	@set -e; for module in $(MODULES); do echo "fmt $$module"; \
		(cd $$module && go run $(GOLANGCI_LINT) fmt --config "$(CURDIR)/.golangci.yml" ./...); done

.PHONY: generate
generate: ## Write what is generated: parts of the Helm chart, and the manifests
	go test -C test/helm -run '^Test(PluginsFile|SchemaNamesPlugins|Definitions|Manifests)$$' . -update

.PHONY: unit
# The tests of installer/image build the program again, which takes seconds after the first build, and minutes before it.
unit: build ## Unit tests
	@command -v prometheus >/dev/null || \
		echo "unit: there is no program prometheus, so InitialResources is NOT tested with a real Prometheus (Debian: apt-get install prometheus)"
	@command -v promtool >/dev/null || echo "unit: there is no promtool (Debian package prometheus), so the alert rules are NOT tested"
	@set -e; for module in $(UNIT_MODULES); do echo "unit $$module"; (cd $$module && go test -race ./...); done

.PHONY: fleet-simulation
fleet-simulation: ## 10,000 simulated fleets with faults: FleetQuota is never above its limit [SEEDS=]
	go test ./internal/fleetquota/ledger -run TestNeverAboveTheLimit -v -timeout 2h -seeds $(or $(SEEDS),10000)

.PHONY: parity
parity: ## The plugins' cases through kube-apiserver's own plugins
	@# Without a list of packages, go test also prints which plugins it compared.
	go test -C test/parity -timeout 30m

.PHONY: e2e
e2e: ## End-to-end tests with a real control plane
	go run -C test/controlplane ./cmd/controlplane build
	go test -C test/controlplane -race ./...
	go test -C test/e2e -race -p 1 -timeout 30m ./...

.PHONY: node
node: $(if $(filter Linux,$(shell uname)),bin/node) ## Tests on a real node: the README's installation, exec, upgrades under load (Linux, root)
ifneq ($(shell uname),Linux)
	@echo "node: this is not Linux, so Postern is NOT tested on a real node"
else
	@bin/node packages
	@if bin/node check; then bin/node build && go test -C test/node -p 1 -timeout 20m ./...; \
		else echo "node: for these reasons, Postern is NOT tested on a real node"; fi
endif

.PHONY: conformance
# kube-apiserver's NamespaceAutoProvision also creates a namespace for an access review in that namespace. The
# API server never calls Postern for access reviews, so two of the 748 writes are missing on purpose.
conformance: $(if $(wildcard $(CONFORMANCE)/replayer),build) ## Replay recorded decisions of kube-apiserver [PLUGINS= CONFORMANCE=folder]
ifeq ($(wildcard $(CONFORMANCE)/replayer),)
	@echo "conformance: there is no $(CONFORMANCE), so the recorded decisions of kube-apiserver are NOT replayed"
else
	go build -C $(CONFORMANCE)/replayer -o "$(CURDIR)/bin/replay" .
	go run ./test/conformance -from $(CONFORMANCE)/cases -to bin/cases
	bin/replay -corpus bin/cases -bin "$(CURDIR)/bin/postern" -v -min 1 -min-hard $(if $(PLUGINS),0.8,0.997) -remap $(REMAP) \
		-plugins "$(or $(PLUGINS),$(BUILT_PLUGINS))" -cmd '$(REPLAYED)'
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
	@go build -C test/upstream -o "$(CURDIR)/$@" .

.PHONY: soak
soak: ## Ten rollouts, ten CA rotations and five kills under a load of 200 creations a second
	go run -C test/controlplane ./cmd/controlplane build
	go test -C test/e2e -tags soak -run '^TestSoak$$' -v -timeout 25m .

.PHONY: bench
bench: ## The cost of a request, beside other webhooks, into docs/performance.md [BENCH_FLAGS=-quick]
	go run -C test/bench . $(or $(BENCH_FLAGS),-docs=../../docs)

##@ Release

.PHONY: image
image: $(IMAGE_PLATFORMS:%=bin/%/postern) bin/image ## Write the container image, for amd64 and arm64, to bin/postern-image.tar
	$(MAKE_IMAGE) archive -version $(TAG) -revision "$(shell git rev-parse HEAD 2>/dev/null)" -to bin/postern-image.tar \
		$(IMAGE_PLATFORMS:%=bin/%/postern)

.PHONY: push
push: image ## Push the container image [IMAGE=registry/name:tag]
	@test -n "$(IMAGE)" || { echo "push: set IMAGE=registry/name:tag"; exit 2; }
	bin/image push bin/postern-image.tar $(IMAGE)

.PHONY: release
release: image $(RELEASE_PLATFORMS:%=bin/%/postern) ## Write binaries, image, chart, manifest and checksums to bin/release [IMAGE= RELEASE=folder]
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	cp bin/postern-image.tar $(RELEASE)
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
