// Command worker is a fleet member: it takes tasks from claimq queues and
// delivers them over HTTP. Its settings come from the environment; see
// config.example.env.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes.
const (
	exitOK        = 0
	exitFailed    = 1 // something went wrong that is not the caller's fault
	exitUsage     = 2 // wrong flags or configuration
	exitAbandoned = 3 // stopped with work in hand; it comes back elsewhere
)

// std is where a verb reads and writes.
type std struct {
	in       io.Reader
	out, err io.Writer
}

// verb is one of the program's commands.
type verb struct {
	name, short string
	run         func(s std, args []string) int
}

func verbs() []verb {
	return []verb{
		{"run", "take tasks and deliver them, until told to stop", runVerb},
		{"demo", "watch a fleet get through work while workers die", demoVerb},
		{"exporter", "serve metrics of the queues and run no tasks, for fleets that are away at times", exporterVerb},
		{"task", "show where a task is and what has happened to it", taskVerb},
		{"check", "say what is wrong with the settings and the server, and how to mend it", checkVerb},
		{"migrate", "make the tables for recorded steps in PostgreSQL, or bring them up to date", migrateVerb},
		{"version", "say which build this is", versionVerb},
	}
}

func main() {
	os.Exit(dispatch(std{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:]))
}

func dispatch(s std, args []string) int {
	if len(args) == 0 {
		usage(s.err)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(rest) == 0 {
			usage(s.out)
			return exitOK
		}
		name, rest = rest[0], []string{"-h"}
	case "-version", "--version":
		name = "version"
	}
	for _, v := range verbs() {
		if v.name == name {
			return v.run(s, rest)
		}
	}
	fmt.Fprintf(s.err, "worker: there is no verb %q; see worker help\n", name)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: worker <verb> [flags]\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-8s %s\n", v.name, v.short)
	}
	fmt.Fprint(w, `
worker help <verb> shows its flags. Settings come from the environment
(REDIS_URL, QUEUES, PUSH_URLS …); config.example.env lists them all.

exit codes: 0 done, 1 failed, 2 wrong flags or settings, 3 stopped with work in hand
`)
}

// parse reads a verb's flags. When done is true the verb ends with code.
func parse(s std, fs *flag.FlagSet, args []string, about string) (code int, done bool) {
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	help := func(w io.Writer) {
		fmt.Fprintf(w, "usage: worker %s [flags]\n\n%s\n", fs.Name(), about)
		fs.SetOutput(w)
		fs.PrintDefaults()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(s.out)
		return exitOK, true
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(s.err, "worker %s: %v\n\n", fs.Name(), err)
		help(s.err)
		return exitUsage, true
	}
	return 0, false
}
