package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/embedded"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/redislease"
	"github.com/claimq/claimq/queue"
)

// Rates are exchange rates in a database that compares fences.
type Rates interface {
	Import(ctx context.Context, fence queue.Fence) error
}

func importRates(ctx context.Context, rdb *redis.Client, rates Rates) error {
	store, err := redislease.New(redislease.Config{Client: rdb})
	if err != nil {
		return err
	}
	locker, err := lease.New(store, lease.Config{Wait: lease.NoWait})
	if err != nil {
		return err
	}
	err = locker.Do(ctx, "rates.import", func(ctx context.Context, l lease.Lease) error {
		// ctx ends once the lease may be somebody else's; the fence stops what
		// is on its way by then: UPDATE … WHERE fence <= $n.
		return rates.Import(ctx, l.Fence)
	})
	if errors.Is(err, lease.ErrHeld) {
		return nil // another machine is at it
	}
	return err
}

// guarded refuses a fence that is smaller than one it has seen.
type guarded struct {
	last   queue.Fence
	during func()
}

func (g *guarded) Import(_ context.Context, fence queue.Fence) error {
	if fence < g.last {
		return errors.New("too late")
	}
	g.last = fence
	fmt.Println("imported")
	if g.during != nil {
		g.during()
	}
	return nil
}

func Example() {
	server, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	opt, err := redis.ParseURL(server.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()

	ctx := context.Background()
	rates := &guarded{}
	rates.during = func() {
		rates.during = nil
		fmt.Println("the other machine:", importRates(ctx, rdb, rates))
	}
	fmt.Println("this machine:", importRates(ctx, rdb, rates))
	fmt.Println("an hour later:", importRates(ctx, rdb, rates))
	// Output:
	// imported
	// the other machine: <nil>
	// this machine: <nil>
	// imported
	// an hour later: <nil>
}

// The example of the page is the function above, to the letter.
func TestExampleOfThePageIsCompiled(t *testing.T) {
	page, err := os.ReadFile("../docs/leases.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n")
	example, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(string(source), example) {
		t.Error("the Go example of docs/leases.md is not in example_test.go")
	}
}
