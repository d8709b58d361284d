package claimqtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/claimq/claimq/claimqtest"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// marks is a store of a user's own in which a task is marked once.
type marks struct {
	mu   sync.Mutex
	seen map[queue.TaskID]bool
}

func (m *marks) reset(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = map[queue.TaskID]bool{}
	return nil
}

// mark reports whether the task was marked by this call.
func (m *marks) mark(ctx context.Context, w *claimqtest.Worker, id queue.TaskID) (first bool, err error) {
	err = w.Do(ctx, "the mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		first = !m.seen[id]
		m.seen[id] = true
		return nil
	})
	return first, err
}

func (m *marks) marked(ctx context.Context, w *claimqtest.Worker, id queue.TaskID) (yes bool, err error) {
	err = w.Do(ctx, "the look at the mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		yes = m.seen[id]
		return nil
	})
	return yes, err
}

// wrong is a handler that is wrong in a common way, and what is found.
type wrong struct {
	name    string
	effect  claimqtest.Effect
	handler func(w *claimqtest.Worker, m *marks) func(context.Context, queue.Lease) error
	found   []string // "fault, where: want and got", each of which is among the findings
	neither func(claimqtest.Finding) bool
}

func wrongs() []wrong {
	honours := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	ignores := &claimqtest.Gateway{Label: "charge"}
	mails := &claimqtest.Counter{Label: "mail"}
	status := &claimqtest.Row{Label: "status"}
	return []wrong{{
		name:   "marks before it acts",
		effect: mails,
		handler: func(w *claimqtest.Worker, m *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				if first, err := m.mark(ctx, w, l.TaskID); err != nil || !first {
					return err
				}
				return mails.For(w)(ctx)
			}
		},
		found: []string{
			"killed, between the mark and mail: mail 1, 0",
			"context cancelled, between the start of the handler and the mark: mail 1, 0",
			"two at once, between the start of the handler and the mark: mail 1, 0",
			"reply lost, at the mark: mail 1, 0",
			"request lost, at mail: mail 1, 0",
		},
		neither: claimqtest.Finding.Doubled,
	}, {
		name:   "acts before it marks",
		effect: mails,
		handler: func(w *claimqtest.Worker, m *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				if done, err := m.marked(ctx, w, l.TaskID); err != nil || done {
					return err
				}
				if err := mails.For(w)(ctx); err != nil {
					return err
				}
				_, err := m.mark(ctx, w, l.TaskID)
				return err
			}
		},
		found: []string{
			"killed, between mail and the mark: mail 1, 2",
			"two at once, between the look at the mark and mail: mail 1, 2",
			"paused past its lease, between the look at the mark and mail: mail 1, 2",
			"reply lost, at mail: mail 1, 2",
			"request lost, at the mark: mail 1, 2",
		},
		neither: claimqtest.Finding.Lost,
	}, {
		name:   "calls a gateway without the key",
		effect: honours,
		handler: func(w *claimqtest.Worker, _ *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, w.Ledger(), l, "charge", func(ctx context.Context, _ dedupe.Key) (string, error) {
					return honours.For(w).Call(ctx, "")
				})
				return err
			}
		},
		found: []string{
			"killed, between the call of charge and the result of step charge: charge 1, 2",
			"reply lost, at the call of charge: charge 1, 2",
		},
		neither: claimqtest.Finding.Lost,
	}, {
		name:   "makes a key of each attempt",
		effect: honours,
		handler: func(w *claimqtest.Worker, _ *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				_, err := honours.For(w).Call(ctx, fmt.Sprintf("%s-%d", l.TaskID, l.Attempt))
				return err
			}
		},
		found:   []string{"killed, between the call of charge and the return of the handler: charge 1, 2"},
		neither: claimqtest.Finding.Lost,
	}, {
		name:   "trusts a gateway that ignores keys",
		effect: ignores,
		handler: func(w *claimqtest.Worker, _ *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, w.Ledger(), l, "charge", charge(ignores.For(w)))
				return err
			}
		},
		found:   []string{"killed, between the call of charge and the result of step charge: charge 1, 2"},
		neither: claimqtest.Finding.Lost,
	}, {
		name:   "goes on after it was replaced, and writes without the fence",
		effect: status,
		handler: func(w *claimqtest.Worker, _ *marks) func(context.Context, queue.Lease) error {
			return func(_ context.Context, l queue.Lease) error { return status.For(w)(context.Background(), l) }
		},
		found: []string{
			"paused past its lease, between the start of the handler and status: status 1, 2",
		},
		neither: func(f claimqtest.Finding) bool { return f.Lost() || f.Fault == claimqtest.Killed },
	}, {
		name:   "swallows an error of Step",
		effect: honours,
		handler: func(w *claimqtest.Worker, _ *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, w.Ledger(), l, "charge", charge(honours.For(w)))
				if err != nil {
					return nil
				}
				return nil
			}
		},
		found: []string{
			"server away, at the intent of step charge: charge 1, 0",
			"request lost, at the call of charge: charge 1, 0",
		},
		neither: claimqtest.Finding.Doubled,
	}, {
		name:   "buries the task at any error",
		effect: honours,
		handler: func(w *claimqtest.Worker, _ *marks) func(context.Context, queue.Lease) error {
			return func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, w.Ledger(), l, "charge", charge(honours.For(w)))
				if err != nil {
					return consumer.DeadLetter(errors.New("declined"))
				}
				return nil
			}
		},
		found: []string{
			"request lost, at the call of charge: charge 1, 0; the task is dead: declined",
			"reply lost, at the call of charge:  0, 0; the task is dead: declined",
		},
		neither: claimqtest.Finding.Doubled,
	}}
}

// TestWrongHandlers: each is found out where it is wrong, and for what it does.
func TestWrongHandlers(t *testing.T) {
	for _, c := range wrongs() {
		t.Run(c.name, func(t *testing.T) {
			var m marks
			r, err := claimqtest.Check(claimqtest.Plan{
				Task: task, Effects: []claimqtest.Effect{c.effect}, Reset: m.reset,
				Handler: func(w *claimqtest.Worker) consumer.Handler { return handle(c.handler(w, &m)) },
			})
			if err != nil {
				t.Fatal(err)
			}
			wantFindings(t, r, c.found, c.neither)
		})
	}
}

// wantFindings compares a report with findings that it must have, as "fault,
// where: effect want, got", and with those that it must not.
func wantFindings(t *testing.T, r claimqtest.Report, want []string, not func(claimqtest.Finding) bool) {
	t.Helper()
	var found []string
	for _, f := range r.Findings {
		text := fmt.Sprintf("%s, %s: %s %d, %d", f.Fault, f.Where, f.Effect, f.Want, f.Got)
		if f.Problem != "" {
			text += "; " + f.Problem
		}
		found = append(found, text)
		if not(f) {
			t.Errorf("found besides: %s", text)
		}
	}
	for _, w := range want {
		if !slices.Contains(found, w) {
			t.Errorf("not found: %s", w)
		}
	}
	if t.Failed() {
		t.Log(r)
	}
}
