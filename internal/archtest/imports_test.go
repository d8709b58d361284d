package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// mayImport lists, for a directory and those below it, which of our packages
// its code (not its tests) may import besides its own. A directory that is not
// listed is free but for the other rules.
var mayImport = map[string][]string{
	"queue":               {},
	"producer":            {"queue", "internal/pgschema"},
	"consumer":            {"queue"},
	"dedupe":              {"queue", "internal/pgschema"},
	"lease":               {"queue"},
	"metrics":             {"queue", "consumer", "producer", "dedupe"},
	"claimqtest":          {"queue", "consumer", "dedupe"},
	"internal/embedded":   {},
	"internal/pgschema":   {},
	"internal/redistest":  {},
	"internal/pgtest":     {"internal/redistest"},
	"internal/faultredis": {},
}

// testHelpers may be imported by tests and by one another only.
var testHelpers = []string{"claimqtest", "internal/redistest", "internal/pgtest", "internal/ledgertest", "lease/internal/leasetest", "internal/faultredis", "internal/sim", "internal/fleet", "internal/archtest"}

// libraries are what users import.
var libraries = []string{"queue", "producer", "consumer", "dedupe", "lease", "metrics", "claimqtest"}

var importRules = []rule{{
	name: "layers",
	reason: "queue is the protocol and knows nobody; producer, consumer and dedupe each stand on it alone, " +
		"so that a user takes one without the others and a change in one cannot break another",
	check: func(tr *tree) []string {
		return tr.eachImport(func(f *file, pkg string) string {
			for dir, allowed := range mayImport {
				if !f.test && f.in(dir) && !within(pkg, dir) && !slices.Contains(allowed, pkg) {
					return dir + " may not import " + pkg
				}
			}
			return ""
		})
	},
}, {
	name:   "commands are the top",
	reason: "what is under cmd wires the rest together; code that somebody else needs belongs in a package of its own",
	check: func(tr *tree) []string {
		return tr.eachImport(func(f *file, pkg string) string {
			if within(pkg, "cmd") && !f.in("cmd") {
				return "nobody imports " + pkg
			}
			return ""
		})
	},
}, {
	name:   "test helpers stay in tests",
	reason: "a helper that gets into a build takes the testing package and a Redis server with it",
	check: func(tr *tree) []string {
		return tr.eachImport(func(f *file, pkg string) string {
			isHelper := func(dir string) bool {
				return slices.ContainsFunc(testHelpers, func(h string) bool { return within(dir, h) })
			}
			if isHelper(pkg) && !f.test && !isHelper(f.dir) {
				return pkg + " is for tests"
			}
			return ""
		})
	},
}, {
	name:   "embedded Redis only in commands",
	reason: "it is a toy for trying things out; a library that could fall back on it would lose tasks",
	check: func(tr *tree) []string {
		return tr.eachImport(func(f *file, pkg string) string {
			if within(pkg, "internal/embedded") && !f.test && !f.in("cmd") {
				return "only commands and tests may import " + pkg
			}
			return ""
		})
	},
}, {
	name:   "slog and Prometheus enter late",
	reason: "queue, producer, dedupe and lease return facts and callers count and log them; a second logger or registry in a library cannot be turned off",
	check: func(tr *tree) []string {
		return tr.eachForeignImport(func(f *file, pkg string) string {
			switch {
			case f.test:
			case (pkg == "log/slog" || pkg == "log") && f.in("queue", "producer", "dedupe", "lease"):
				return "logs with " + pkg
			case strings.HasPrefix(pkg, "github.com/prometheus/") &&
				!f.in("consumer", "metrics", "cmd", "internal/ops", "dashboards"):
				return "counts with " + pkg
			}
			return ""
		})
	},
}, {
	name:   "signals only in commands",
	reason: "a signal belongs to the whole process; a library that takes it changes how its host stops",
	check: func(tr *tree) []string {
		return tr.eachForeignImport(func(f *file, pkg string) string {
			if pkg == "os/signal" && !f.test && !f.in("cmd") {
				return "catches signals"
			}
			return ""
		})
	},
}, {
	name:   "no OpenTelemetry outside tracing",
	reason: "tracing is a module of its own so that who does not trace neither builds nor updates OpenTelemetry",
	check: func(tr *tree) []string {
		var found []string
		for _, name := range []string{"go.mod", "go.sum"} {
			for n, line := range eachLine(tr.texts[name]) {
				if strings.Contains(line, "go.opentelemetry.io/") {
					found = append(found, violation(fmt.Sprintf("%s:%d", name, n+1), "depends on OpenTelemetry"))
				}
			}
		}
		return found
	},
}}

// eachImport asks about every import of one of our packages, named by its
// directory.
func (tr *tree) eachImport(ask func(f *file, pkg string) string) []string {
	return tr.eachForeignImport(func(f *file, pkg string) string {
		if own, ok := strings.CutPrefix(pkg, module+"/"); ok {
			return ask(f, own)
		}
		return ""
	})
}

func (tr *tree) eachForeignImport(ask func(f *file, pkg string) string) []string {
	var found []string
	for _, f := range tr.files {
		f.imports(func(pkg, at string) {
			if what := ask(f, pkg); what != "" {
				found = append(found, violation(at, "%s", what))
			}
		})
	}
	return found
}

func TestImportRulesCanFail(t *testing.T) {
	imports := func(pkg string) string { return "package x\nimport _ \"" + pkg + "\"\n" }
	own := func(dir string) string { return imports(module + "/" + dir) }
	for _, c := range []trial{{
		rule: "layers",
		bad: map[string]string{
			"queue/a.go":             own("internal/config"),
			"producer/a.go":          own("consumer"),
			"consumer/sub/a.go":      own("dedupe"),
			"dedupe/a.go":            own("producer"),
			"metrics/a.go":           own("internal/ops"),
			"internal/embedded/a.go": own("queue"),
		},
		good: map[string]string{
			"producer/a.go":      own("queue"),
			"producer/a_test.go": own("consumer"),
			"dedupe/sql/a.go":    own("dedupe"),
			"internal/push/a.go": own("consumer"),
			"queue/a.go":         imports("context"),
		},
	}, {
		rule: "commands are the top",
		bad:  map[string]string{"internal/push/a.go": own("cmd/worker/internal/demo")},
		good: map[string]string{"cmd/worker/a.go": own("cmd/worker/internal/demo")},
	}, {
		rule: "test helpers stay in tests",
		bad: map[string]string{
			"queue/a.go":      own("internal/redistest"),
			"cmd/worker/a.go": own("internal/faultredis"),
			"consumer/a.go":   own("internal/sim"),
			"producer/a.go":   own("claimqtest"),
		},
		good: map[string]string{
			"queue/a_test.go":       own("internal/redistest"),
			"internal/sim/fleet.go": own("internal/faultredis"),
		},
	}, {
		rule: "embedded Redis only in commands",
		bad:  map[string]string{"consumer/a.go": own("internal/embedded")},
		good: map[string]string{"cmd/worker/a.go": own("internal/embedded"), "consumer/a_test.go": own("internal/embedded")},
	}, {
		rule: "slog and Prometheus enter late",
		bad: map[string]string{
			"queue/a.go":           imports("log/slog"),
			"dedupe/a.go":          imports("log"),
			"producer/a.go":        imports("github.com/prometheus/client_golang/prometheus"),
			"internal/config/a.go": imports("github.com/prometheus/client_golang/prometheus"),
		},
		good: map[string]string{
			"consumer/a.go":   imports("log/slog"),
			"metrics/a.go":    imports("github.com/prometheus/client_golang/prometheus"),
			"cmd/worker/a.go": imports("log/slog"),
		},
	}, {
		rule: "signals only in commands",
		bad:  map[string]string{"consumer/a.go": imports("os/signal")},
		good: map[string]string{"cmd/worker/a.go": imports("os/signal")},
	}, {
		rule: "no OpenTelemetry outside tracing",
		bad:  map[string]string{"go.mod": "require (\n\tgo.opentelemetry.io/otel/trace v1.0.0 // indirect\n)\n"},
		good: map[string]string{"go.mod": "module x\n", "tracing/go.mod": "require go.opentelemetry.io/otel v1.0.0\n"},
	}} {
		c.run(t, false)
	}
}
