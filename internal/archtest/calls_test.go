package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	_ "golang.org/x/sync/errgroup" // a sample below imports it
)

const redisPackage = "github.com/redis/go-redis/v9"

// redisAllowed are the functions and methods of the client that say nothing
// about what the server holds: making a client, closing it, looking at it, and
// telling its errors apart.
var redisAllowed = []string{
	"NewClient", "NewUniversalClient", "NewFailoverClient", "NewFailoverClusterClient", "NewClusterClient",
	"ParseURL", "ParseClusterURL", "ParseFailoverURL", "SetLogger",
	"Close", "Options", "PoolStats", "Ping", "AddHook", "String",
	"HasErrorPrefix", "Error", "RedisError", "Err", "Val", "Result", "Simple", "Cluster", "Failover",
}

// redisOwners may say anything to a server: they have keys of their own, or
// are themselves a server or a fault.
var redisOwners = []string{
	"queue", "lease", "dedupe",
	"internal/redistest", "internal/faultredis", "internal/embedded", "internal/sim", "claimqtest",
}

// goStarters start goroutines without the word go.
var goStarters = map[string]string{
	"(*sync.WaitGroup).Go":                           "WaitGroup.Go",
	"(*golang.org/x/sync/errgroup.Group).Go":         "errgroup",
	"(*golang.org/x/sync/errgroup.Group).TryGo":      "errgroup",
	"time.AfterFunc":                                 "time.AfterFunc",
	"context.AfterFunc":                              "context.AfterFunc",
	"(*golang.org/x/sync/singleflight.Group).DoChan": "singleflight",
}

var noGoroutines = []string{"queue", "producer", "dedupe", "lease"}

var callRules = []rule{{
	name: "only queue talks to Redis",
	reason: "a key or a command outside the protocol is one that no script checks the holder for; " +
		"queue, lease and dedupe's store own their keys, all others ask them",
	check: func(tr *tree) []string {
		found := tr.eachUse(func(f *file, fn *types.Func) string {
			if f.in(redisOwners...) || fn.Pkg() == nil || fn.Pkg().Path() != redisPackage ||
				slices.Contains(redisAllowed, fn.Name()) || strings.HasPrefix(fn.Name(), "Is") {
				return ""
			}
			return "uses redis " + fn.Name()
		})
		return append(found, tr.scriptTexts()...)
	},
}, {
	name: "nobody closes a client it was given",
	reason: "the client belongs to whoever made it; other queues and the rest of the program may be using it. " +
		"queue closes the read client that it made itself",
	check: func(tr *tree) []string {
		return tr.eachUse(func(f *file, fn *types.Func) string {
			if fn.Pkg() != nil && fn.Pkg().Path() == redisPackage && fn.Name() == "Close" &&
				f.in("producer", "consumer", "dedupe", "lease", "metrics") {
				return "closes a Redis client"
			}
			return ""
		})
	},
}, {
	name:   "no goroutine below consumer",
	reason: "queue, producer, dedupe and lease answer when asked and are done when they return: nothing of theirs can leak, race with Close or outlive a context",
	exceptions: map[string]string{
		"lease/do.go:":              "Do renews while the caller's function runs, and returns when both goroutines have ended",
		"lease/internal/leasetest/": "clients of a test have to compete",
	},
	check: func(tr *tree) []string {
		found := tr.eachUse(func(f *file, fn *types.Func) string {
			if what := goStarters[fn.FullName()]; what != "" && f.in(noGoroutines...) {
				return "starts a goroutine with " + what
			}
			return ""
		})
		for _, f := range tr.files {
			if f.test || !f.in(noGoroutines...) {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					found = append(found, violation(f.at(g), "starts a goroutine with go"))
				}
				return true
			})
		}
		return found
	},
}, {
	name:   "environment is read in one place",
	reason: "every variable is listed, checked and documented by internal/config; one read elsewhere is none of these",
	check: func(tr *tree) []string {
		reads := []string{"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Expand", "syscall.Getenv", "syscall.Environ"}
		return tr.eachUse(func(f *file, fn *types.Func) string {
			// redistest and pgtest take a server's path from the environment, as tests do.
			if slices.Contains(reads, fn.FullName()) && !f.in("internal/config", "cmd", "internal/redistest", "internal/pgtest") {
				return "reads the environment with " + fn.FullName()
			}
			return ""
		})
	},
}, {
	name:   "only main exits",
	reason: "os.Exit skips every deferred call: leases would not be handed back and the last log lines would be lost",
	check:  func(tr *tree) []string { return append(tr.exitsInCode(), tr.exitsInTests()...) },
}, {
	name:   "libraries do not print",
	reason: "standard output and error belong to the program that the library is part of",
	check: func(tr *tree) []string {
		prints := []string{"fmt.Print", "fmt.Println", "fmt.Printf", "log.Print", "log.Println", "log.Printf"}
		return tr.eachUse(func(f *file, fn *types.Func) string {
			if slices.Contains(prints, fn.FullName()) && f.in(libraries...) {
				return "prints with " + fn.FullName()
			}
			return ""
		})
	},
}}

// eachUse asks about every function or method that code other than tests names.
func (tr *tree) eachUse(ask func(f *file, fn *types.Func) string) []string {
	var found []string
	for _, u := range tr.resolved.uses {
		fn, ok := u.obj.(*types.Func)
		if !ok {
			continue
		}
		if what := ask(u.file, fn); what != "" {
			found = append(found, violation(u.file.at(u.id), "%s", what))
		}
	}
	return found
}

// scriptTexts finds Lua in strings.
func (tr *tree) scriptTexts() []string {
	var found []string
	for _, f := range tr.files {
		if f.test || f.in(redisOwners...) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && lit.Kind == token.STRING &&
				(strings.Contains(lit.Value, "redis.call(") || strings.Contains(lit.Value, "redis.pcall(")) {
				found = append(found, violation(f.at(lit), "holds a Redis script"))
			}
			return true
		})
	}
	return found
}

func (tr *tree) exitsInCode() []string {
	exits := []string{"os.Exit", "syscall.Exit", "runtime.Goexit", "log.Fatal", "log.Fatalf", "log.Fatalln"}
	var found []string
	for _, u := range tr.resolved.uses {
		fn, ok := u.obj.(*types.Func)
		if !ok || !slices.Contains(exits, fn.FullName()) {
			continue
		}
		f := u.file
		inMain := f.in("cmd") && f.ast.Name.Name == "main" && enclosing(f.ast, u.id) == "main"
		if !inMain || fn.FullName() != "os.Exit" {
			found = append(found, violation(f.at(u.id), "ends the process with %s", fn.FullName()))
		}
	}
	return found
}

// exitsInTests allows os.Exit in TestMain only.
func (tr *tree) exitsInTests() []string {
	var found []string
	for _, f := range tr.files {
		if !f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && selects(sel, "os", "Exit") && enclosing(f.ast, sel) != "TestMain" {
				found = append(found, violation(f.at(sel), "ends the test process outside TestMain"))
			}
			return true
		})
	}
	return found
}

func selects(sel *ast.SelectorExpr, pkg, name string) bool {
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && sel.Sel.Name == name
}

// enclosing names the function that n is in.
func enclosing(f *ast.File, n ast.Node) string {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Pos() <= n.Pos() && n.End() <= fn.End() {
			return fn.Name.Name
		}
	}
	return ""
}

func TestCallRulesCanFail(t *testing.T) {
	redisGet := `package x
import ("context"; "github.com/redis/go-redis/v9")
func f(ctx context.Context, c redis.UniversalClient) { c.Get(ctx, "k") }`
	for _, c := range []trial{{
		rule: "only queue talks to Redis",
		bad: map[string]string{
			"consumer/a.go": redisGet,
			"producer/a.go": `package x
import ("context"; "github.com/redis/go-redis/v9")
func f(ctx context.Context, c *redis.Client) { c.Do(ctx, "xack") }`,
			"metrics/a.go":         "package x\nimport \"github.com/redis/go-redis/v9\"\nvar s = redis.NewScript(\"return 1\")",
			"cmd/worker/a.go":      "package x\nconst s = `return redis.call('GET', KEYS[1])`",
			"internal/config/a.go": "package x\nimport \"github.com/redis/go-redis/v9\"\nvar f = (*redis.Client).XAck",
		},
		good: map[string]string{
			"queue/a.go": redisGet,
			"cmd/worker/a.go": `package x
import ("context"; "net/http"; "sync"; "github.com/redis/go-redis/v9")
func f(ctx context.Context, h http.Header, wg *sync.WaitGroup) error {
	h.Get("k"); h.Set("k", "v"); wg.Wait()
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	_ = c.PoolStats()
	return c.Ping(ctx).Err()
}`,
		},
	}, {
		rule: "nobody closes a client it was given",
		bad: map[string]string{"consumer/a.go": `package x
import "github.com/redis/go-redis/v9"
func f(c redis.UniversalClient) { c.Close() }`},
		good: map[string]string{"consumer/a.go": "package x\nimport \"os\"\nfunc f(c *os.File) { c.Close() }"},
	}, {
		rule: "no goroutine below consumer",
		bad: map[string]string{
			"queue/a.go":    "package x\nfunc f() { go f() }",
			"producer/a.go": "package x\nimport \"sync\"\nfunc f(wg *sync.WaitGroup) { wg.Go(func() {}) }",
			"dedupe/a.go":   "package x\nimport \"golang.org/x/sync/errgroup\"\nfunc f() { var g errgroup.Group; g.Go(nil) }",
			"dedupe/b.go":   "package x\nimport \"golang.org/x/sync/errgroup\"\ntype T struct { errgroup.Group }\nfunc f(t *T) { t.TryGo(nil) }",
			"queue/b.go":    "package x\nimport \"time\"\nvar f = time.AfterFunc",
			"queue/c.go":    "package x\nimport c \"context\"\nfunc f(ctx c.Context) { c.AfterFunc(ctx, func() {}) }",
			"lease/a.go":    "package x\nfunc f() { go f() }",
		},
		good: map[string]string{
			"consumer/a.go":   "package x\nfunc f() { go f() }",
			"queue/a_test.go": "package x\nfunc f() { go f() }",
			"queue/a.go":      "package x\nimport \"time\"\nfunc f() { time.NewTimer(1).Stop() }",
		},
	}, {
		rule: "environment is read in one place",
		bad: map[string]string{
			"queue/a.go":        "package x\nimport \"os\"\nvar v = os.Getenv(\"X\")",
			"internal/ops/a.go": "package x\nimport e \"os\"\nvar v, ok = e.LookupEnv(\"X\")",
		},
		good: map[string]string{"internal/config/a.go": "package x\nimport \"os\"\nvar v = os.Environ()"},
	}, {
		rule: "only main exits",
		bad: map[string]string{
			"consumer/a.go":   "package x\nimport \"os\"\nfunc f() { os.Exit(1) }",
			"cmd/worker/a.go": "package main\nimport \"os\"\nfunc run() { os.Exit(1) }",
			"cmd/worker/b.go": "package main\nimport \"log\"\nfunc main() { log.Fatal() }",
			"queue/a_test.go": "package x\nimport \"os\"\nfunc TestX() { os.Exit(1) }",
		},
		good: map[string]string{
			"cmd/worker/a.go": "package main\nimport \"os\"\nfunc main() { os.Exit(1) }",
			"queue/a_test.go": "package x\nimport \"os\"\nfunc TestMain() { os.Exit(1) }",
		},
	}, {
		rule: "libraries do not print",
		bad:  map[string]string{"consumer/a.go": "package x\nimport \"fmt\"\nfunc f() { fmt.Println() }"},
		good: map[string]string{"consumer/a.go": "package x\nimport \"fmt\"\nfunc f() string { return fmt.Sprint(1) }"},
	}} {
		c.run(t, true)
	}
}
