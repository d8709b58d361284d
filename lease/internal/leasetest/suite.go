// Package leasetest is what every lease.Store has to pass: one suite, and a
// history of competing clients that is checked for mutual exclusion. Where
// stores differ in what they promise, Promises says so.
package leasetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/claimq/claimq/lease"
)

// Length is that of leases in the suite. It leaves room for a busy machine,
// since what is trusted is four fifths of it.
const Length = 2 * time.Second

// patience bounds waits for what must come.
const patience = 20 * time.Second

// Promises are what stores differ in.
type Promises struct {
	// Fenced: each lease has a greater fence than all before it. Otherwise
	// fences are 0.
	Fenced bool
	// Expires: the lease of a holder that shows no sign of life ends. Otherwise
	// it is kept for as long as the holder's connection lives.
	Expires bool
	// ErrHeldProves: who is answered ErrHeld was not the only one who asked.
	ErrHeldProves bool
	// MayFail: a call has a part of the lease length and no more, so on a busy
	// machine one may fail.
	MayFail bool
	// AcquireAgain and ReleaseAgain: asked again with the same token, the answer
	// is the first. Otherwise a second acquire may be refused, and a second
	// release is ErrLost.
	AcquireAgain, ReleaseAgain bool
	// CrashFrees is how long after the end of a holder's process others get the
	// lease at the latest. 0: with the lease.
	CrashFrees time.Duration
}

// Subject is one store with fresh leases, and what a test can do to it.
type Subject struct {
	Promises
	// Open returns a store for the same leases, as one more process has it. It
	// is closed with the test.
	Open func() lease.Store
	// Crash ends the process that has the store, as far as the server can tell.
	Crash func(lease.Store)
	// End ends the lease on a name at the server, as time or an operator would.
	End func(name string)
}

// Run runs the suite. open makes a subject for each test.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"OneHolder", oneHolder},
		{"FencesGrow", fencesGrow},
		{"HeldIsSaidAtOnce", heldAtOnce},
		{"NamesAreApart", namesApart},
		{"WaitIsBounded", waitBounded},
		{"WaitEndsWithTheLease", waitEnds},
		{"CancelledWhileWaiting", cancelledWhileWaiting},
		{"CancelledBefore", cancelledBefore},
		{"RenewedWhileItRuns", renewedWhileItRuns},
		{"LossEndsTheContext", lossEndsContext},
		{"LateVerbsAreRefused", lateVerbs},
		{"PauseDuringTheLease", pause},
		{"CrashOfTheHolder", crash},
		{"Reentrance", reentrance},
		{"GivenBack", givenBack},
		{"AskedAgain", askedAgain},
		{"History", history},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

func (s Subject) locker(t *testing.T, edit ...func(*lease.Config)) *lease.Locker {
	t.Helper()
	return on(t, s.Open(), edit...)
}

func on(t *testing.T, store lease.Store, edit ...func(*lease.Config)) *lease.Locker {
	t.Helper()
	cfg := lease.Config{Length: Length, Wait: patience, Poll: 20 * time.Millisecond}
	for _, f := range edit {
		f(&cfg)
	}
	l, err := lease.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wait(d time.Duration) func(*lease.Config) { return func(c *lease.Config) { c.Wait = d } }

func length(d time.Duration) func(*lease.Config) { return func(c *lease.Config) { c.Length = d } }

// long is for tests of which no part depends on the end of the lease.
func long(c *lease.Config) { c.Length = time.Minute }

func acquire(t *testing.T, l *lease.Locker, name string) lease.Lease {
	t.Helper()
	got, err := l.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func release(t *testing.T, l *lease.Locker, held lease.Lease) {
	t.Helper()
	if err := l.Release(t.Context(), held); err != nil {
		t.Error(err)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// until waits for c.
func until(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-c:
	case <-late.C:
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// passed waits until a moment is over. It is for what must not happen before.
func passed(t *testing.T, moment time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

var errStop = errors.New("stopped by the test")

// stopped is a context that ends with errStop.
func stopped(t *testing.T) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, func() { cancel(errStop) }
}
