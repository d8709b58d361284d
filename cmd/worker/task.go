package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/queue"
)

const taskAbout = `worker task ID shows where a task is and what has happened to it, oldest first:
what is rare (failures, lost leases, take-overs, dead letters …) always, every
step where the workers and producers have QUEUE_TRACE set. A queue keeps the last
10,000 events of each partition. Looks in all queues of QUEUES. Changes nothing,
and shows nothing of payloads.

Exit code 0: shown; 1: nothing is known of it, or the server is away;
2: wrong flags or settings.
`

func taskVerb(s std, args []string) int {
	fs := flag.NewFlagSet("task", flag.ContinueOnError)
	name := fs.String("queue", "", "look in `NAME` instead of the queues of QUEUES")
	asJSON := fs.Bool("json", false, "print it as JSON")
	id, rest := operand(args)
	if code, done := parse(s, fs, rest, taskAbout); done {
		return code
	}
	if id == "" {
		fmt.Fprintln(s.err, "worker task: name the task, for instance: worker task invoice-4821-send")
		return exitUsage
	}
	cfg, err := config.LoadWorker(nil)
	if err == nil && cfg.Redis.Embedded() {
		err = errors.New("REDIS_URL: not set; name the server that has the task, for instance redis://localhost:6379/0")
	}
	if err != nil {
		sayProblems(s, "task", err)
		return exitUsage
	}
	if *name != "" {
		cfg.Queue.Queues = config.QueueList{{Name: *name, Weight: 1}}
	}
	qs, err := openQueues(cfg)
	if err != nil {
		sayProblems(s, "task", err)
		return exitUsage
	}
	defer qs.close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found, code := findTask(ctx, s, qs.list, queue.TaskID(id))
	if *asJSON {
		return max(code, printJSON(s, taskReports(found)))
	}
	for _, f := range found {
		f.print(s.out)
	}
	return code
}

// operand takes the one argument that is no flag from wherever it stands. A
// second one is left for parse to refuse, and one after "--" is never a flag.
func operand(args []string) (id string, rest []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--" && id == "" && len(args) == i+2:
			return args[i+1], rest
		case a == "-queue" || a == "--queue":
			rest = append(rest, args[i:min(i+2, len(args))]...)
			i++
		case !strings.HasPrefix(a, "-") && id == "":
			id = a
		case !strings.HasPrefix(a, "-"):
			rest = append(rest, args[i:]...)
			return id, rest
		default:
			rest = append(rest, a)
		}
	}
	return id, rest
}

// foundTask is a task in one queue.
type foundTask struct {
	queue string
	queue.Timeline
}

// findTask asks each queue for the task, and says what is wrong where it cannot
// tell.
func findTask(ctx context.Context, s std, list []*queue.Queue, id queue.TaskID) (found []foundTask, code int) {
	var names []string
	for _, q := range list {
		t, err := q.Timeline(ctx, id)
		known := t.Info.Place != queue.Unknown || len(t.Events) > 0
		switch {
		case err == nil || known:
			found = append(found, foundTask{q.Name(), t})
		case errors.Is(err, queue.ErrNotFound):
			err = samePartitions(ctx, q)
		}
		names = append(names, q.Name())
		if err != nil {
			fmt.Fprintf(s.err, "worker task: queue %s: %v\n", q.Name(), err)
			code = exitFailed
			if errors.Is(err, queue.ErrMismatch) {
				code = exitUsage
			}
		}
	}
	if len(found) == 0 && code == exitOK {
		fmt.Fprintf(s.err, "worker task: nothing is known of task %q in queue %s: it was never added there, or it is done and forgotten\n",
			id, strings.Join(names, ", "))
		code = exitFailed
	}
	return found, code
}

// samePartitions tells whether the task was looked for where it would be.
func samePartitions(ctx context.Context, q *queue.Queue) error {
	s, err := q.Stats(ctx)
	if err != nil || s.Unfinished()+s.Dead+s.Consumers == 0 {
		return err
	}
	return q.Ensure(ctx) // it is there, so this only compares
}
