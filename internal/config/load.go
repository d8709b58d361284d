package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/claimq/claimq/queue"
)

// LoadWorker reads the worker's settings from environ, a list of NAME=value;
// nil means the environment of the process. The error joins every problem.
func LoadWorker(environ []string) (Worker, error) {
	var w Worker
	l := newLoader(environ)
	l.load(&w.Redis, &w.Postgres, &w.Queue, &w.Run, &w.Push, &w.Ops, &w.Log)
	w.Redis.rootCAs = l.certificates("REDIS_CA_FILE", w.Redis.CAFile)
	w.Push.RootCAs = l.certificates("PUSH_CA_FILE", w.Push.CAFile)
	if w.Run.MaxStuck == 0 {
		w.Run.MaxStuck = w.Run.Concurrency
	}
	if l.ok() {
		l.checkRedis(w.Redis)
		l.checkQueue(w.Queue)
		l.checkRun(w)
		l.checkPush(w)
		l.checkSteps(w)
	}
	w.Warnings = l.warnings
	return w, l.err()
}

// LoadProducer reads the producer's settings, as LoadWorker does.
func LoadProducer(environ []string) (Producer, error) {
	var p Producer
	l := newLoader(environ)
	l.load(&p.Redis, &p.Queue, &p.Produce)
	p.Redis.rootCAs = l.certificates("REDIS_CA_FILE", p.Redis.CAFile)
	if l.ok() {
		l.checkRedis(p.Redis)
		l.checkQueue(p.Queue)
	}
	if p.Redis.Embedded() && !l.failed["REDIS_URL"] {
		l.bad("REDIS_URL", "not set; name the server that the workers use, for instance redis://localhost:6379/0")
	}
	p.Warnings = l.warnings
	return p, l.err()
}

// LoadRelay reads the settings of the relay, as LoadWorker does.
func LoadRelay(environ []string) (Relay, error) {
	var r Relay
	l := newLoader(environ)
	l.load(&r.Redis, &r.Postgres, &r.Queue, &r.Produce, &r.Move, &r.Ops, &r.Log)
	r.Redis.rootCAs = l.certificates("REDIS_CA_FILE", r.Redis.CAFile)
	if l.ok() {
		l.checkRedis(r.Redis)
		l.checkQueue(r.Queue)
		l.checkRelay(r)
	}
	if r.Redis.Embedded() && !l.failed["REDIS_URL"] {
		l.bad("REDIS_URL", "not set; name the server that the workers use, for instance redis://localhost:6379/0")
	}
	if !r.Postgres.URL.IsSet() && !l.failed["POSTGRES_URL"] {
		l.bad("POSTGRES_URL", "not set; name the database that holds the outbox, for instance postgres://localhost:5432/app")
	}
	r.Warnings = l.warnings
	return r, l.err()
}

// loader collects what is wrong while the groups are read.
type loader struct {
	env      map[string]string
	problems []error
	warnings []string
	failed   map[string]bool // variables with a problem, so that none is reported twice
}

func newLoader(environ []string) *loader {
	if environ == nil {
		environ = os.Environ()
	}
	l := &loader{env: make(map[string]string, len(environ)), failed: map[string]bool{}}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		l.env[name] = value
	}
	return l
}

func (l *loader) bad(name, remedy string, args ...any) {
	l.failed[name] = true
	l.problems = append(l.problems, &queue.FieldError{
		Field: name, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig,
	})
}

func (l *loader) warn(text string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(text, args...))
}

func (l *loader) ok() bool   { return len(l.problems) == 0 }
func (l *loader) err() error { return errors.Join(l.problems...) }

// load fills the groups, then checks names and ranges.
func (l *loader) load(groups ...any) {
	l.checkNames()
	for _, g := range groups {
		vars := variablesOf(g)
		l.readFiles(vars)
		l.parse(g, vars)
		for _, v := range vars {
			if !l.failed[v.Name] {
				l.checkRange(v)
			}
		}
	}
}

// parse reads one group. A group is parsed alone because the library names
// the field that failed, and only within a group are those names unique.
func (l *loader) parse(group any, vars []variable) {
	err := env.ParseWithOptions(group, env.Options{Environment: l.env, FuncMap: parsers})
	if err == nil {
		return
	}
	agg, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		agg.Errors = []error{err}
	}
	for _, e := range agg.Errors {
		pe, ok := errors.AsType[env.ParseError](e)
		i := slices.IndexFunc(vars, func(v variable) bool { return ok && v.Field == pe.Name })
		if i < 0 {
			l.problems = append(l.problems, fmt.Errorf("%w: %w", queue.ErrInvalidConfig, e))
			continue
		}
		l.bad(vars[i].Name, "%v", pe.Err)
	}
}

// readFiles puts the content of NAME_FILE in the place of NAME.
func (l *loader) readFiles(vars []variable) {
	for _, v := range vars {
		path := l.env[v.Name+"_FILE"]
		if !v.Secret || path == "" {
			continue
		}
		if l.env[v.Name] != "" {
			l.bad(v.Name, "%s is set too; keep one of the two", v.Name+"_FILE")
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			l.bad(v.Name+"_FILE", "%v", err)
			l.failed[v.Name] = true
			continue
		}
		l.env[v.Name] = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	}
}

// variable is one field with an env tag.
type variable struct {
	Name    string // of the environment variable
	Field   string // of the struct
	Default string
	Range   string // "low..high", either of which may be missing
	Example string // shown where there is no default
	Secret  bool   // NAME_FILE is understood too
	Value   reflect.Value
}

// variablesOf lists the variables of a group, in order.
func variablesOf(group any) []variable {
	rv := reflect.ValueOf(group).Elem()
	var vars []variable
	for i := range rv.NumField() {
		f := rv.Type().Field(i)
		name, ok := f.Tag.Lookup("env")
		if !ok {
			continue
		}
		vars = append(vars, variable{
			Name: name, Field: f.Name, Default: f.Tag.Get("envDefault"), Range: f.Tag.Get("range"),
			Example: f.Tag.Get("example"), Secret: f.Tag.Get("secret") == "true", Value: rv.Field(i),
		})
	}
	return vars
}
