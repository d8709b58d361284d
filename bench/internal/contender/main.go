package contender

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
)

// Main is the whole of a contender's program. open connects; more are modes of
// its own, by name.
func Main(open func(Options) (Queue, error), more map[string]Mode) {
	if err := run(open, more); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(open func(Options) (Queue, error), more map[string]Mode) error {
	o := flags()
	in := bufio.NewReader(os.Stdin)
	start := func() {
		fmt.Println("ready")
		_, _ = in.ReadString('\n') // an end of input starts too, and then ends it
	}
	var result Result
	var err error
	if mode := more[o.Mode]; mode != nil {
		result, err = mode(o, start)
	} else {
		var q Queue
		if q, err = open(o); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		result, err = standard(q, o, start, in)
	}
	if err != nil {
		return err
	}
	out, err := json.Marshal(result)
	if err != nil {
		return err
	}
	fmt.Println(string(out))
	_, _ = io.Copy(io.Discard, in)
	return nil
}

func standard(q Queue, o Options, start func(), in *bufio.Reader) (Result, error) {
	switch o.Mode {
	case "enqueue":
		return enqueue(q, o, start)
	case "drain":
		return drain(q, o, start)
	case "serve":
		return serve(q, o, start, in)
	case "feed":
		return feed(q, o, start)
	case "hold":
		return tell(q, o, start, true)
	case "tell":
		return tell(q, o, start, false)
	}
	return Result{}, fmt.Errorf("no mode %q", o.Mode)
}

func flags() Options {
	var o Options
	flag.StringVar(&o.Mode, "mode", "", "what to do")
	flag.StringVar(&o.Variant, "variant", "", "way to use the library")
	flag.StringVar(&o.Addr, "addr", "", "server")
	flag.IntVar(&o.N, "n", 1000, "tasks")
	flag.IntVar(&o.Callers, "callers", 64, "goroutines that enqueue")
	flag.IntVar(&o.Batch, "batch", 1, "tasks in one enqueue call")
	flag.IntVar(&o.Handlers, "handlers", 64, "handlers at once")
	flag.IntVar(&o.Size, "size", 256, "payload bytes")
	flag.DurationVar(&o.Work, "work", 0, "that a handler takes")
	flag.IntVar(&o.Rate, "rate", 1000, "tasks per second")
	flag.DurationVar(&o.For, "for", 0, "length")
	flag.DurationVar(&o.Warm, "warm", 0, "time to leave out")
	flag.StringVar(&o.Profile, "cpuprofile", "", "file for a CPU profile")
	flag.StringVar(&o.AllocFile, "allocprofile", "", "file for a profile of allocations")
	flag.IntVar(&o.Workers, "workers", 0, "workers of a fleet")
	flag.IntVar(&o.Backlog, "backlog", 0, "waiting tasks")
	flag.IntVar(&o.Pending, "pending", 0, "pending tasks")
	flag.IntVar(&o.Scheduled, "scheduled", 0, "scheduled tasks")
	flag.IntVar(&o.Dead, "dead", 0, "dead letters")
	flag.IntVar(&o.Partitions, "partitions", 1, "partitions")
	flag.StringVar(&o.Base, "base", "", "server to compare with")
	flag.IntVar(&o.IDBytes, "idbytes", 36, "length of task IDs")
	flag.Parse()
	return o
}

// profile writes profiles where the options ask for them; call what it returns
// when the work is over.
func profile(o Options) (func() error, error) {
	if o.Profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(o.Profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// writeAllocs writes the profile of allocations, if it is asked for.
func writeAllocs(o Options) error {
	if o.AllocFile == "" {
		return nil
	}
	f, err := os.Create(o.AllocFile)
	if err != nil {
		return err
	}
	if err := pprof.Lookup("allocs").WriteTo(f, 0); err != nil {
		return err
	}
	return f.Close()
}
