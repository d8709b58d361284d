package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/claimq/claimq/queue"
)

const usage = `usage:
  producer -file F [-queue NAME] [-json]       add the tasks of a JSON Lines file ("-": standard input)
  producer -kind K [-id I] [-payload P] [...]  add one task
  producer relay [...]                         add what transactions left in an outbox; see producer relay -help

A line is a JSON object:
  {"id": "invoice-4821-send", "kind": "invoice.send", "payload": {"number": 4821}}
  id       names the task; the same ID adds nothing a second time
  kind     which handler it is for
  payload  any JSON value, handed over byte for byte
  delay    optional: "5s", or a number of seconds
  due      optional: a moment such as "2030-01-31T09:00:00Z"

The server and the queue come from the environment: REDIS_URL and what
config.example.env lists. Exit code: 0 done, 1 some tasks were not added, 2 usage or
configuration, 3 some tasks may or may not have been added (run it again).

flags:
`

var errHelp = errors.New("help was asked for")

type options struct {
	file  string
	queue string
	json  bool

	id, kind, payload, delay, due string

	task queue.Task // from the flags, when there is no file
}

func (o *options) single() bool { return o.file == "" }

// parseFlags reads the flags. piped says that something was put into standard
// input on purpose; it is read when the flags say nothing else.
func parseFlags(args []string, piped bool, stdout io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("producer", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned
	fs.StringVar(&o.file, "file", "", "JSON Lines file of tasks, or - for standard input, which is also read when it is\npiped and nothing else is given")
	fs.StringVar(&o.queue, "queue", "", "queue to add to; default: the first of QUEUES")
	fs.BoolVar(&o.json, "json", false, "print the summary as JSON")
	fs.StringVar(&o.id, "id", "", "ID of the task; default: a new one")
	fs.StringVar(&o.kind, "kind", "", "kind of the task")
	fs.StringVar(&o.payload, "payload", "", "payload of the task, as it is")
	fs.StringVar(&o.delay, "delay", "", "start the task no sooner than this from now, such as 5s")
	fs.StringVar(&o.due, "due", "", "start the task no sooner than this moment, such as 2030-01-31T09:00:00Z")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return nil, errHelp
	}
	if err != nil {
		return nil, fmt.Errorf("%w; see producer -help", err)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; see producer -help", fs.Arg(0))
	}
	one := o.id != "" || o.kind != "" || o.payload != "" || o.delay != "" || o.due != ""
	switch {
	case o.file != "" && one:
		return nil, errors.New("-file stands alone: -id, -kind, -payload, -delay and -due describe one task")
	case o.file != "":
		return o, nil
	case !one && piped:
		o.file = "-"
		return o, nil
	case o.kind == "":
		return nil, errors.New("give -file F, or pipe JSON Lines in, or give -kind and what else describes one task; see producer -help")
	}
	o.task, err = o.describe()
	return o, err
}

// describe makes the one task of the flags.
func (o *options) describe() (queue.Task, error) {
	t := queue.Task{ID: queue.TaskID(o.id), Kind: o.kind, Payload: []byte(o.payload)}
	if json.Valid(t.Payload) {
		t.ContentType = jsonType
	}
	if o.delay != "" {
		d, err := time.ParseDuration(o.delay)
		if err != nil || d < 0 {
			return t, errors.New("-delay: write a positive number with a unit, such as 5s or 1h30m")
		}
		t.Delay = d
	}
	if o.due != "" {
		at, err := time.Parse(time.RFC3339, o.due)
		if err != nil {
			return t, errors.New("-due: write a moment such as 2030-01-31T09:00:00Z")
		}
		t.Due = at
	}
	if o.delay != "" && o.due != "" {
		return t, errors.New("-delay and -due exclude each other")
	}
	return t, nil
}

// open returns where the tasks come from.
func (o *options) open(stdin io.Reader, maxPayload int) (*source, error) {
	switch o.file {
	case "":
		return oneTask(o.task), nil
	case "-":
		return newSource(stdin, nil, 0, maxPayload), nil
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", o.file)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	size := int64(0)
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return newSource(f, f, size, maxPayload), nil
}
