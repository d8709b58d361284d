package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/claimq/claimq/queue"
)

// lived gives a task a history on the script's server: lived queue id. It is
// taken by "first", whose lease ends; taken over by "second"; first is refused;
// and second's attempt fails.
func lived(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lived queue id")
	}
	opt, err := redis.ParseURL(ts.Getenv("REDIS"))
	ts.Check(err)
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	q, err := queue.New(queue.Config{Name: args[0], Prefix: ts.Getenv("PREFIX"), Client: rdb, Lease: queue.MinLease})
	ts.Check(err)
	defer q.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ts.Check(q.Ensure(ctx))
	ts.Check(q.Enqueue(ctx, q.NewToken(), []queue.Task{{ID: queue.TaskID(args[1]), Kind: "mail.send", Payload: []byte("secret"), Headers: map[string]string{"h": "secret"}}})[0].Err)
	entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "first", Max: 1})
	ts.Check(err)
	begin := func(consumer string, entries []queue.Entry) queue.Lease {
		b, err := q.Begin(ctx, queue.BeginRequest{Token: q.NewToken(), Consumer: consumer, Entries: entries, Start: 1})
		ts.Check(err)
		return b.Deliveries[0].Lease
	}
	first := begin("first", entries)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for entries = nil; len(entries) == 0; <-tick.C {
		r, err := q.Reclaim(ctx, queue.ReclaimRequest{Consumer: "second", Max: 1})
		ts.Check(err)
		entries = r.Entries
	}
	second := begin("second", entries)
	q.Renew(ctx, []queue.Grant{first.Grant})
	ts.Check(q.Complete(ctx, []queue.Settlement{{Lease: first}})[0].Err)
	ts.Check(q.Retry(ctx, []queue.Settlement{{Lease: second, Delay: time.Hour, Error: "boom\nat line 1"}})[0].Err)
}
