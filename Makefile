# `make` prints what there is. CI runs `make test`, so what passes here passes there.

.DEFAULT_GOAL := help
.PHONY: help deps test lint fleet chaos killpoints soak observe pictures fmt demo build dashboards bench bench-full

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# For each package; the whole run takes a few minutes on two cores.
TEST_TIMEOUT ?= 12m
CLAIMQ_REDIS_SERVER ?= redis-server
export CLAIMQ_REDIS_SERVER

# Linters have a module of their own, so no user's build ever sees them.
STATICCHECK := go tool -modfile=tools/go.mod staticcheck
BENCH := . ./internal/... ./contenders/claimq ./contenders/floor

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What the tests need besides Go, and the Debian packages it comes in.
deps: ## install redis-server, redis-cli, PostgreSQL, python3 and prometheus, which the tests need, where apt-get may be used
	@missing=""; \
	command -v "$(CLAIMQ_REDIS_SERVER)" >/dev/null || missing="$$missing redis-server"; \
	command -v redis-cli >/dev/null || missing="$$missing redis-tools"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	command -v promtool >/dev/null && command -v prometheus >/dev/null || missing="$$missing prometheus"; \
	command -v initdb >/dev/null || [ -n "$$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null)$${CLAIMQ_POSTGRES_BIN:-}" ] || missing="$$missing postgresql"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	as_root=""; \
	if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "missing:$$missing (Debian's names); install them, Redis 7.0.5 or later, or set CLAIMQ_REDIS_SERVER to a server's path" >&2; exit 1; \
	fi; \
	if [ -n "$$as_root" ] && ! $$as_root true 2>/dev/null; then \
		echo "missing:$$missing; run 'sudo apt-get install$$missing' (installing needs root, and sudo asks for a password)" >&2; exit 1; \
	fi; \
	echo "installing$$missing"; \
	$$as_root apt-get update -q && $$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends $$missing; \
	case "$$missing" in *postgresql*) $$as_root service postgresql stop >/dev/null 2>&1 || true;; esac; \
	command -v "$(CLAIMQ_REDIS_SERVER)" >/dev/null || { echo "missing: $(CLAIMQ_REDIS_SERVER), even after installing redis-server" >&2; exit 1; }

test: deps lint ## all that must hold: format, vet, lint, the rules of the house, all tests with the race detector
	go test -count=1 ./internal/archtest
	go test -race -count=1 -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -v -e '/internal/archtest$$' -e '/internal/sim$$')
	@# The race detector shuffles goroutines, and a seed would not be a run any more.
	go test -count=1 -timeout $(TEST_TIMEOUT) ./internal/sim
	cd dashboards/gen && go vet ./... && go tool -modfile=../../tools/go.mod staticcheck ./... && go test -count=1 -timeout $(TEST_TIMEOUT) ./...
	cd tracing && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./... && go test -race -count=1 -timeout $(TEST_TIMEOUT) ./...
	@# Of the benchmark what is our own: the peers are 700 MB of modules.
	cd bench && go vet $(BENCH) && go tool -modfile=../tools/go.mod staticcheck $(BENCH) && go test -count=1 -timeout $(TEST_TIMEOUT) $(BENCH)

lint: ## look for what gofmt, go vet and staticcheck object to
	@unformatted=$$(gofmt -l */ $$(find . -maxdepth 1 -name '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:" >&2; echo "$$unformatted" >&2; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

fleet: deps ## 20,000 tasks through three workers, one killed every two seconds (about two minutes)
	go test -count=1 -v -timeout 20m -run TestFleetOfKills ./internal/e2e -fleet.tasks 20000

DURATION ?= 2m
CHAOS_SEED ?= 1
# Not `go test`, whose own words would be the last ones.
chaos: deps ## break a fleet and its server in every way for DURATION=2m; the last line sums up
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go test -c -o "$$dir/chaos.test" ./internal/chaos; cd internal/chaos; \
	"$$dir/chaos.test" -test.v -test.timeout 0 -test.run '^TestChaos$$' -chaos.duration $(DURATION) -chaos.seed $(CHAOS_SEED)

RUNS ?= 1000
KILLPOINTS_SEED ?= 1
killpoints: deps ## kill RUNS=1000 workers between receipt and acknowledgement (a few minutes); the last line sums up
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go test -c -o "$$dir/killpoints.test" ./internal/killpoints; cd internal/killpoints; \
	"$$dir/killpoints.test" -test.timeout 0 -test.run '^TestKillPoints$$' -killpoints.runs $(RUNS) -killpoints.seed $(KILLPOINTS_SEED)

SOAK_SEED ?= 1
# Seeds that nobody has run yet are had with another SOAK_SEED.
soak: ## run a fleet in virtual time, seed after seed, for DURATION=2m; the last line sums up
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go test -c -o "$$dir/sim.test" ./internal/sim; cd internal/sim; \
	"$$dir/sim.test" -sim.soak $(DURATION) -sim.seed $(SOAK_SEED)

observe: deps ## scrape a fleet that breaks with a real Prometheus, and ask it what dashboards and alerts ask (DURATION=2m)
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go test -c -o "$$dir/observe.test" ./internal/observe; cd internal/observe; \
	"$$dir/observe.test" -test.v -test.timeout 0 -observe.duration $(DURATION)

# Needs node, npm and chromium; no test does.
pictures: deps ## draw the dashboards anew for docs/images, from a run of five minutes
	npm --prefix dashboards/render ci --no-audit --no-fund
	go test -count=1 -timeout 20m -run '^TestObserve$$' ./internal/observe -observe.duration 5m -observe.pictures ../../docs/images

fmt: ## format all Go files
	gofmt -w */ $$(find . -maxdepth 1 -name '*.go')

demo: ## watch a fleet get through work while workers die; needs nothing installed
	go run ./cmd/worker demo

build: ## build the commands into bin/
	go build -trimpath -o bin/ ./cmd/...

dashboards: ## write anew everything that is generated: dashboards, rules, lists in the documentation
	go generate ./...
	cd dashboards/gen && go generate ./...

# It has a module of its own, so no user's build ever sees the peers.
bench: deps ## measure claimq beside its peers, about four minutes; the last lines say which targets are met
	@cd bench && go run -mod=mod . -server "$(CLAIMQ_REDIS_SERVER)"

bench-full: deps ## the same with everything, within an hour
	@cd bench && go run -mod=mod . -full -server "$(CLAIMQ_REDIS_SERVER)"
