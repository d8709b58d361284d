package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// bare stands between the queue and the server and leaves out what makes tasks
// safe: the duplicate check, records, leases, fences and done marks. Everything
// else of the code runs as it is, so the difference is what safety costs.
type bare struct{ rdb *redis.Client }

var errUnknownScript = errors.New("bare: a script that it does not know how to leave out")

func newBare(rdb *redis.Client) *bare {
	opt := *rdb.Options()
	opt.PushNotificationProcessor = nil // one for each client
	return &bare{redis.NewClient(&opt)}
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
		c.SetVal([]any{time.Now().UnixMicro(), time.Now().UnixMilli()}) // everything is granted
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

// enqueue adds the fields of n tasks: …, n, four columns, the last of them the
// numbers of fields, and then all fields.
func (b *bare) enqueue(ctx context.Context, c *redis.Cmd, stream string, args []any) error {
	for at := range args {
		n, ok := args[at].(int)
		first := at + 1 + 4*n
		if !ok || n < 1 || first > len(args) || first+sum(args[first-n:first]) != len(args) {
			continue
		}
		pipe := b.rdb.Pipeline()
		for _, size := range args[first-n : first] {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: args[first : first+size.(int)]})
			first += size.(int)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		replies := make([]any, n)
		for i := range replies {
			replies[i] = "added waiting"
		}
		c.SetVal(replies)
		return nil
	}
	return fmt.Errorf("%w: enqueue", errUnknownScript)
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

func sum(numbers []any) (total int) {
	for _, n := range numbers {
		v, ok := n.(int)
		if !ok {
			return -1
		}
		total += v
	}
	return total
}

// complete acks and deletes the entries of n tasks: …, n, IDs, entries, ….
func (b *bare) complete(ctx context.Context, c *redis.Cmd, stream string, args []any) error {
	for at := range args {
		n, ok := args[at].(int)
		if !ok || n < 1 || at+1+2*n > len(args) {
			continue
		}
		entries := make([]string, 0, n)
		for _, e := range args[at+1+n : at+1+2*n] {
			if s, ok := e.(string); ok && isEntry(s) {
				entries = append(entries, s)
			}
		}
		if len(entries) < n {
			continue
		}
		pipe := b.rdb.Pipeline()
		pipe.XAck(ctx, stream, queue.Group, entries...)
		pipe.XDel(ctx, stream, entries...)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		c.SetVal([]any{})
		return nil
	}
	return fmt.Errorf("%w: complete", errUnknownScript)
}

func isEntry(s string) bool {
	ms, seq, ok := strings.Cut(s, "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(seq, 10, 64)
	return ok && err == nil && err2 == nil
}
