# rootsfs: make demo shows it, make test proves it.
GO      ?= go
BIN     := bin
PKGS    := ./...
.PHONY: all help check format static build install dist demo test test-core test-peers test-confined test-rest model container-test kernel-test soak screenshots bench fuzz lint tables clean need-go need-root

all: build

# The lines of this file that say what a target is for.
help:
	@sed -n 's/^#: /  make /p' $(MAKEFILE_LIST)

#: build           the program, into bin/
#: install         the programs, man pages and completions, into DESTDIR/PREFIX (/usr/local)
#: dist            a release, into dist/: archives, .deb, .rpm, .apk, npm, MCPB, checksums
#: demo            a mount, a refusal, an escape and a revocation, with their records
#: check           what needs no privileges: format, vet, static checks, unit tests
#: test            everything, with the race detector; installs the programs it needs
#: test-core       one of the four parts of it; also test-peers, test-confined, test-rest
#: model           the order of a revocation, searched for faults by Spin; ten minutes
#: lint            format, vet, static checks, other platforms, known vulnerabilities
#: fuzz            each fuzz target for FUZZTIME (60s)
#: soak            the loops that tests run shortened, in full
#: bench           rootsfs and its peers on the same work, as ratios
#: container-test  demo and test on a bare Debian root, as root and as a user
#: kernel-test     rootsfs on other kernels, in virtual machines; KERNELFLAGS=-smoke: the least
#: screenshots     the pictures of the console in the README
#: clean           removes bin/

# Without C: a program that is linked statically starts sooner, which counts
# three times in rootsfs run, and needs nothing of the root it starts in.
#
# Copied, because the linker writes through a mapping: a program that the kernel keeps
# in single pages starts slower, by a twelfth of rootsfs run (measured).
CLI := github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli
build: need-go
	@set -- $$(sh integration/dist/version.sh); CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false \
	  -ldflags "-X $(CLI).version=$$1 -X $(CLI).commit=$$2 -X $(CLI).date=$$3" -o $(BIN)/rootsfs.linked ./cmd/rootsfs
	@cp $(BIN)/rootsfs.linked $(BIN)/rootsfs.new && mv $(BIN)/rootsfs.new $(BIN)/rootsfs && rm $(BIN)/rootsfs.linked

DESTDIR ?= /
PREFIX  ?= /usr/local
install: need-go
	@$(GO) run ./integration/dist -install "$(DESTDIR)" -prefix "$(PREFIX)" $(DISTFLAGS)

# Everything that a release consists of, from integration/dist/dist.toml.
dist: need-go
	rm -rf dist
	$(GO) run ./integration/dist -out dist

# Builds, mounts this repository read-only and a scratch directory writable, and
# shows a read, a refused write, a refused escape and a revocation of an open
# file, with the audit line of each.
demo:
	@GO=$(GO) sh integration/setup.sh demo $(MAKE) --no-print-directory build
	@sh integration/demo/demo.sh $(BIN)/rootsfs

# Installs what is missing (setup.sh names it), and runs the tests; suite says what else
# it looks at. RACE=most: with the race detector even on a slow machine (none and least: less).
# `make test-core` runs one of the four parts. The suite itself is compiled as the
# programs of the tests are (testkit.Build), so that both compile their packages once.
RACE ?= auto
test test-core test-peers test-confined test-rest:
	@GO=$(GO) sh integration/setup.sh test env CGO_ENABLED=0 $(GO) run -trimpath ./integration/suite -go $(GO) -race=$(RACE) -declared $(patsubst test-%,%,$(filter-out test,$@))

# Searches the models of integration/model, and mutations of them: it fails unless every
# configuration holds, exhaustively, and every mutation is found. MODELFLAGS='-only FORGET'
# runs some.
model:
	@GO=$(GO) sh integration/setup.sh model $(GO) run ./integration/model $(MODELFLAGS)

# Both commands on a machine that nobody has prepared: a bare Debian root, as root and as
# a user, twice each, and beside a busy loop. Needs root and debootstrap; over an hour.
container-test:
	@bash integration/container.sh $(CONTAINERRUNS)

# Boots kernels of distributions, the ones of KERNELS or all that are known, and writes what
# rootsfs does there to bin/kernels. Needs root. KERNELFLAGS=-help says what else there is.
kernel-test:
	@GO=$(GO) sh integration/setup.sh kernels $(GO) run ./integration/kernels $(KERNELFLAGS) $(KERNELS)

# The loops that `make test` runs shortened, in full.
soak: need-go
	ROOTSFS_SOAK=1 $(GO) test -race -p 1 -timeout 3h ./vfs/... ./mount/... ./broker/tools ./cmd/... ./integration/...

# The pictures of the console in the README, by Chromium; look at them.
screenshots: need-go
	ROOTSFS_SCREENSHOTS=1 CI=true $(GO) test -count 1 -timeout 5m -run TestScreenshots ./integration/console

bench: build
	$(GO) run ./integration/bench $(BENCHFLAGS)

FUZZTIME ?= 60s
# -fuzzminimizetime: Go's minimiser stalls on long inputs (measured).
fuzz: need-go
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; $(GO) test $$pkg -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 0x; \
	  done; done

# The packages whose tests need neither a mount nor a program that is not Go's.
UNITS := ./guard/... ./vfs/... ./broker/wire ./broker/client ./integration/deps ./integration/model ./integration/suite

check: static
	$(GO) test -vet=off $(UNITS)

format:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }

# The tables in the topics are what the code says; go generate ./cmd/rootsfs writes them.
tables: need-go
	$(GO) test -vet=off -run '^(TestTopicTables|TestTopics)$$' ./cmd/rootsfs

# Tool versions are pinned in go.mod (tool directives).
static: need-go format tables
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

lint: static
	for os in linux darwin windows; do GOOS=$$os $(GO) build ./guard ./guard/names ./broker/wire ./broker/client || exit 1; done
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -trimpath -o /dev/null ./cmd/rootsfs
	$(GO) mod tidy -diff
	@out=$$($(GO) tool govulncheck $(PKGS) 2>&1); code=$$?; echo "$$out"; \
	case "$$out" in *"fetching vulnerabilities"*) echo "lint: NOT CHECKED for vulnerabilities: vuln.go.dev cannot be reached from here";; \
	*) exit $$code;; esac

clean:
	rm -rf $(BIN)

need-go:
	@GO=$(GO) sh integration/setup.sh go true
