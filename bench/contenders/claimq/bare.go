package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// bare stands between the queue and the server and leaves out what makes tasks
// safe: the duplicate check, records, leases, fences and done marks. Everything
// else of the code runs as it is, so the difference is what safety costs.
type bare struct {
	rdb *redis.Client

	mu      sync.Mutex
	entries map[string]string // of the tasks that were begun, by ID
}

var errUnknownScript = errors.New("bare: a script that it does not know how to leave out")

func newBare(rdb *redis.Client) *bare {
	opt := *rdb.Options()
	opt.PushNotificationProcessor = nil // one for each client
	return &bare{rdb: redis.NewClient(&opt), entries: map[string]string{}}
}

func (b *bare) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *bare) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c, ok := cmd.(*redis.Cmd)
		if !ok || c.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		known, err := b.replace(ctx, c)
		if !known {
			return next(ctx, cmd)
		}
		if err != nil {
			c.SetErr(err)
		}
		return err
	}
}

func (b *bare) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c, ok := cmd.(*redis.Cmd)
			if !ok || c.Name() != "evalsha" {
				return next(ctx, cmds) // not of scripts
			}
			known, err := b.replace(ctx, c)
			if !known {
				err = fmt.Errorf("%w: in a pipeline", errUnknownScript)
			}
			if err != nil {
				c.SetErr(err)
			}
		}
		return nil
	}
}

// replace does the work of a script without it, and reports whether it is one
// of those that are replaced. Scripts are told apart by their keys.
func (b *bare) replace(ctx context.Context, c *redis.Cmd) (known bool, err error) {
	nkeys := c.Args()[2].(int)
	all := plain(c.Args()[3:])
	keys, args := all[:nkeys], all[nkeys:]
	key := func(i int, what string) bool { return strings.HasSuffix(keys[i].(string), ":"+what) }
	switch {
	case nkeys >= 12 && key(0, "stream") && key(3, "due"):
		return true, b.enqueue(ctx, c, keys[0].(string), args)
	case nkeys >= 12 && key(0, "stream") && key(4, "leases") && key(5, "grants"):
		b.begin(c, args)
		return true, nil
	case nkeys >= 14 && key(0, "stream") && key(2, "leases") && key(3, "grants"):
		return true, b.complete(ctx, c, keys[0].(string), args)
	case nkeys >= 2 && key(0, "tasks") && key(1, "leases") && !key(nkeys-2, "grants"): // start: nobody is lost
		c.SetVal([]any{})
		return true, nil
	case nkeys >= 4 && key(0, "leases") && key(1, "due"): // turn: nothing is yours
		c.SetVal([]any{int64(1), int64(0), int64(0), int64(0)})
		return true, nil
	case nkeys >= 4 && key(0, "leases") && key(1, "revoked"): // renew: all of them
		return true, b.renew(c, args)
	}
	return false, nil
}

// plain has the arguments themselves where there are pointers to them.
func plain(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if p, ok := a.(*string); ok {
			a = *p
		}
		out[i] = a
	}
	return out
}

// enqueue adds the entries of n tasks of one shape: the header of enqueue.lua says
// what its arguments are.
func (b *bare) enqueue(ctx context.Context, c *redis.Cmd, stream string, args []any) error {
	n, ok := args[8].(int)
	if !ok || args[6] != "0" || args[7] != 1 {
		return fmt.Errorf("%w: enqueue", errUnknownScript)
	}
	ids, at := args[9:9+n], 9+2*n
	fields, differ := number(args[at]), number(args[at+1])
	common := args[at+2 : at+2+2*fields]
	places := args[at+2+2*fields : at+2+2*fields+differ]
	own := args[at+2+2*fields+differ:]
	pipe := b.rdb.Pipeline()
	for i := range n {
		values := append([]any{"id", ids[i]}, common...)
		for h, place := range places {
			values[1+2*number(place)] = own[i*differ+h]
		}
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: values})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	c.SetVal([]any{int64(n)}) // all are added
	return nil
}

func number(arg any) int {
	n, err := strconv.Atoi(arg.(string))
	if err != nil {
		panic(err)
	}
	return n
}

// begin grants everything. It notes the entries, which complete does not name.
func (b *bare) begin(c *redis.Cmd, args []any) {
	n := args[8].(int)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range n {
		b.entries[args[9+i].(string)] = args[9+n+i].(string)
	}
	c.SetVal([]any{time.Now().UnixMicro(), time.Now().UnixMilli()})
}

// renew answers for n grants: …, n, tokens, lengths.
func (b *bare) renew(c *redis.Cmd, args []any) error {
	for _, a := range args {
		if n, ok := a.(int); ok {
			replies := make([]any, n)
			for i := range replies {
				replies[i] = "+"
			}
			c.SetVal(replies)
			return nil
		}
	}
	return fmt.Errorf("%w: renew", errUnknownScript)
}

// complete acks and deletes the entries of n tasks.
func (b *bare) complete(ctx context.Context, c *redis.Cmd, stream string, args []any) error {
	n := args[6].(int)
	entries := make([]string, n)
	b.mu.Lock()
	for i := range n {
		id := args[7+i].(string)
		entries[i] = b.entries[id]
		delete(b.entries, id)
	}
	b.mu.Unlock()
	pipe := b.rdb.Pipeline()
	pipe.XAck(ctx, stream, queue.Group, entries...)
	pipe.XDel(ctx, stream, entries...)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	c.SetVal([]any{})
	return nil
}
