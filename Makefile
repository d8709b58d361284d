# `make` prints what there is. CI runs `make test`, so what passes here passes there.

.DEFAULT_GOAL := help
.PHONY: help deps test lint fmt demo build

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# For each package; the whole run takes a few minutes on two cores.
TEST_TIMEOUT ?= 12m
REDIS_SERVER ?= redis-server
export REDIS_SERVER

# Linters have a module of their own, so no user's build ever sees them.
STATICCHECK := go tool -modfile=tools/go.mod staticcheck

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install redis-server, which the tests need, where apt-get may be used
	@if command -v "$(REDIS_SERVER)" >/dev/null; then exit 0; fi; \
	if [ "$(REDIS_SERVER)" != redis-server ]; then echo "missing: $(REDIS_SERVER), which REDIS_SERVER names" >&2; exit 1; fi; \
	as_root=""; \
	if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "missing: redis-server, 7.0.5 or later; install it, or set REDIS_SERVER to its path (there is no apt-get here to do it with)" >&2; exit 1; \
	fi; \
	if [ -n "$$as_root" ] && ! $$as_root true 2>/dev/null; then \
		echo "missing: redis-server; run 'sudo apt-get install redis-server', or set REDIS_SERVER to its path (installing it needs root, and sudo asks for a password)" >&2; exit 1; \
	fi; \
	echo "installing redis-server"; \
	$$as_root apt-get update -q && $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q redis-server; \
	command -v "$(REDIS_SERVER)" >/dev/null || { echo "missing: $(REDIS_SERVER), even after installing redis-server" >&2; exit 1; }

test: deps lint ## all that must hold: format, vet, lint, the rules of the house, all tests with the race detector
	go test -count=1 ./internal/archtest
	go test -race -count=1 -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -v '/internal/archtest$$')

lint: ## look for what gofmt, go vet and staticcheck object to
	@unformatted=$$(gofmt -l */ $$(find . -maxdepth 1 -name '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:" >&2; echo "$$unformatted" >&2; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

fmt: ## format all Go files
	gofmt -w */ $$(find . -maxdepth 1 -name '*.go')

demo: ## watch a fleet get through work while workers die; needs nothing installed
	go run ./cmd/worker demo

build: ## build the commands into bin/
	go build -trimpath -o bin/ ./cmd/...
