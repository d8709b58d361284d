package queue

import (
	"context"
	"crypto/sha256"
	"strings"

	"github.com/redis/go-redis/v9"
)

// call is one run of a script in one partition.
type call struct {
	script    *script
	partition int
	args      []any    // the whole command: EVALSHA, digest, number of keys, keys, arguments
	texts     []string // what the pointers in args point to
	reply     any
	err       error

	durable *Durability // what to wait for, of all calls that are run together
	unkept  error       // why that was not confirmed; nil: it was, or nothing was asked for
}

// smallCall is a call with room for a few arguments, such as those of one task.
type smallCall struct {
	call
	argsRoom  [40]any
	textsRoom [6]string
}

// newCall begins a call with room for so many arguments.
func (q *Queue) newCall(s *script, partition, room int) *call {
	room += 3 + len(s.keys)
	var c *call
	if small := (smallCall{}); room <= len(small.argsRoom) {
		m := &smallCall{}
		c = &m.call
		c.args, c.texts = m.argsRoom[:0], m.textsRoom[:0]
	} else {
		c = &call{args: make([]any, 0, room)}
	}
	c.script, c.partition = s, partition
	c.args = append(c.args, "evalsha", s.shaArg, len(s.keys))
	c.args = q.parts[partition].appendKeys(c.args, s)
	return c
}

// call makes a call with a few arguments.
func (q *Queue) call(s *script, partition int, args ...any) *call {
	return q.newCall(s, partition, len(args)).add(args...)
}

// add adds arguments as they are.
func (c *call) add(args ...any) *call {
	c.args = append(c.args, args...)
	return c
}

// expect makes room for n texts, before the first of them.
func (c *call) expect(n int) {
	if n > cap(c.texts) {
		c.texts = make([]string, 0, n)
	}
}

// text adds one of many strings. A string costs an allocation when it becomes
// an any, a pointer to one does not, and the client writes either.
func (c *call) text(s string) *call {
	c.texts = append(c.texts, s)
	c.args = append(c.args, &c.texts[len(c.texts)-1])
	return c
}

// digestBytes is what remembers a finished ID: half of its SHA-256, whatever
// its length.
const digestBytes = 16

func digest(id TaskID) string {
	sum := sumOf(id)
	return string(sum[:digestBytes])
}

func sumOf(id TaskID) [sha256.Size]byte {
	var b [MaxIDBytes]byte
	if len(id) > len(b) {
		return sha256.Sum256([]byte(id))
	}
	return sha256.Sum256(b[:copy(b[:], id)])
}

// digests gathers the digests of a batch in one string.
type digests struct{ all strings.Builder }

func (d *digests) expect(n int) { d.all.Grow(n * digestBytes) }

// of adds the digest of an ID and returns it.
func (d *digests) of(id TaskID) string {
	from := d.all.Len()
	sum := sumOf(id)
	d.all.Write(sum[:digestBytes])
	return d.all.String()[from:]
}

// tails makes the tails of leases, which are mostly those of one grant.
type tails struct {
	fence Fence
	token Token
	text  string
}

func (t *tails) of(l *Lease) string {
	if t.text == "" || t.fence != l.Fence || t.token != l.Grant.Token {
		t.fence, t.token, t.text = l.Fence, l.Grant.Token, l.tail()
	}
	return t.text
}

// run runs calls, several in one round trip, and leaves reply or err in each.
// A script the server has forgotten is sent whole.
func (q *Queue) run(ctx context.Context, calls ...*call) {
	q.send(ctx, calls, false)
	var again []*call
	for _, c := range calls {
		if c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		q.send(ctx, again, true)
	}
	for _, c := range calls {
		c.err = q.repeated(c.script.name, c.err)
	}
}

func (q *Queue) send(ctx context.Context, calls []*call, whole bool) {
	durable := calls[0].durable
	if len(calls) == 1 && durable == nil {
		c := calls[0]
		cmd := c.command(ctx, whole)
		_ = q.rdb.Process(ctx, cmd) // the command carries it
		c.reply, c.err = cmd.Result()
		return
	}
	pipe := q.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx, whole)
		_ = pipe.Process(ctx, cmds[i])
	}
	var waits *redis.Cmd
	if durable != nil {
		waits = durable.command(ctx)
		_ = pipe.Process(ctx, waits)
	}
	_, err := pipe.Exec(ctx)
	_ = err // each command carries its own
	for i, c := range calls {
		c.reply, c.err = cmds[i].Result()
		if durable != nil {
			c.unkept = durable.unkept(waits.Result())
		}
	}
}

// command is the call by the script's digest, or with its text.
func (c *call) command(ctx context.Context, whole bool) *redis.Cmd {
	args := c.args
	if whole {
		args = append([]any{"eval", c.script.text}, args[2:]...)
	}
	return redis.NewCmd(ctx, args...)
}

// flag is how scripts are told yes or no.
func flag(b bool) any {
	if b {
		return "1"
	}
	return "0"
}
