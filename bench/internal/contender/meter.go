package contender

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Calls is how many calls of a kind a cycle makes between two looks at the
// server's account, so that the looks cost next to nothing.
const Calls = 10

// Meter reads the server's own accounts between the parts of a work. It costs
// the server an INFO call each time, so a part should be many calls long.
type Meter struct {
	rdb    *redis.Client
	n      int
	last   float64
	memory float64
	out    map[string]float64
	err    error
}

// NewMeter returns a meter for n tasks, set to now.
func NewMeter(rdb *redis.Client, n int) *Meter {
	m := &Meter{rdb: rdb, n: n, out: map[string]float64{}}
	m.last = m.cpu()
	m.memory = m.info("memory", "used_memory")
	return m
}

// Skip leaves out what the server did since the last call.
func (m *Meter) Skip() { m.last = m.cpu() }

// Lap adds what the server did since the last call to a part, in µs for each
// task.
func (m *Meter) Lap(part string) {
	now := m.cpu()
	m.out[part+"_us"] += (now - m.last) * 1e6 / float64(m.n)
	m.last = now
}

// Memory notes by how many bytes for each task the server has grown since the
// meter was made.
func (m *Meter) Memory(what string) {
	m.out[what+"_bytes"] = (m.info("memory", "used_memory") - m.memory) / float64(m.n)
	m.last = m.cpu()
}

// Set notes any other number.
func (m *Meter) Set(what string, v float64) { m.out[what] = v }

// Total is the sum of all parts, in µs for each task.
func (m *Meter) Total() (sum float64) {
	for part, v := range m.out {
		if strings.HasSuffix(part, "_us") && part != "total_us" {
			sum += v
		}
	}
	return sum
}

// Result returns all parts and their total_us, or the first error.
func (m *Meter) Result() (map[string]float64, error) {
	if sum := m.Total(); sum > 0 {
		m.out["total_us"] = sum
	}
	return m.out, m.err
}

// cpu is the processor time that the server has used, in seconds.
func (m *Meter) cpu() float64 { return m.info("cpu", "used_cpu_user", "used_cpu_sys") }

// info is the sum of some fields of a section.
func (m *Meter) info(section string, fields ...string) (sum float64) {
	text, err := m.rdb.Info(context.Background(), section).Result()
	m.err = errors.Join(m.err, err)
	for _, field := range fields {
		v, ok := InfoField(text, field)
		if err == nil && !ok {
			m.err = errors.Join(m.err, fmt.Errorf("the server's INFO has no %s", field))
		}
		sum += v
	}
	return sum
}

// InfoField finds a number in what INFO answers.
func InfoField(text, field string) (float64, bool) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), field+":"); ok {
			f, err := strconv.ParseFloat(v, 64)
			return f, err == nil
		}
	}
	return 0, false
}

// CountSlow makes the server count calls that take longer than d, from now.
func (m *Meter) CountSlow(d time.Duration) error {
	ctx := context.Background()
	return errors.Join(
		m.rdb.ConfigSet(ctx, "slowlog-log-slower-than", strconv.FormatInt(d.Microseconds(), 10)).Err(),
		m.rdb.ConfigSet(ctx, "slowlog-max-len", "1000").Err(),
		m.rdb.Do(ctx, "SLOWLOG", "RESET").Err(),
	)
}

// Slow returns how many calls have been so slow, 1,000 at most.
func (m *Meter) Slow() (float64, error) {
	n, err := m.rdb.Do(context.Background(), "SLOWLOG", "LEN").Int()
	return float64(n), err
}
