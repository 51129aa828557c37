# Each target does its own set-up: a fresh machine needs Go, Python 3 with pip, and make.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := bin/moonsail

.PHONY: help build test demo lint bench e2e fuzz envoy clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /  make \1\t/' | expand -t 16

build: ## build bin/moonsail
	@echo "==> building $(BIN)"
	@go build -o $(BIN) ./cmd/moonsail

envoy: build ## fetch the pinned Envoy into .tools
	@echo "==> Envoy"
	@$(BIN) envoy install

demo: envoy ## run a whole mesh on this machine
	@$(BIN) demo $(DEMOFLAGS)

test: envoy ## all tests, with the race detector
	@go test -race ./...

clean: ## remove what was built and fetched
	rm -rf bin dist .tools
