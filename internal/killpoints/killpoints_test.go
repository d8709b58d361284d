package killpoints

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
)

const (
	lanes      = 4                       // queues with a worker each, at the same time
	ofEachKind = 2                       // new tasks for each worker
	longest    = 1500 * time.Millisecond // for how long a worker that does not reach its point lives
	elsewhere  = "a random moment"
	drainLimit = 5 * time.Minute
)

// expected are points without which the list of points is not what it should
// be: from the first read to the acknowledgement.
var expected = []string{
	"before redis xreadgroup", "after redis xreadgroup", "before redis begin", "after redis begin",
	"before handler", "before postgres begin", "after postgres commit", "after handler",
	"before redis complete", "after redis complete",
}

// rig is what all lanes share.
type rig struct {
	t    *testing.T
	srv  *redistest.Server
	pool *pgxpool.Pool
	base plan

	points []string // sorted

	mu    sync.Mutex
	died  map[string]int // by point
	tasks []string       // all that were enqueued, as "kind id"
}

// TestKillPoints: a worker is killed again and again, between any two steps
// from the receipt of a task to its acknowledgement, and at random moments.
// Two of three die at a point, the others at a moment. Every task has its effect
// exactly once. (F1)
func TestKillPoints(t *testing.T) {
	if os.Getenv(planVariable) != "" {
		t.Fatal("a worker runs no tests")
	}
	r := newRig(t)
	r.points = r.listPoints()
	t.Logf("points: %q", r.points)
	for _, p := range expected {
		if !slices.Contains(r.points, p) {
			t.Fatalf("no point %q among %q", p, r.points)
		}
	}
	began := time.Now()
	var wg sync.WaitGroup
	for n := range lanes {
		wg.Go(func() { r.lane(n) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	r.report(began)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	srv, pg := redistest.Shared(t), pgtest.Shared(t)
	dsn := pg.DSN(t)
	r := &rig{t: t, srv: srv, pool: pgtest.Connect(t, dsn), died: map[string]int{}}
	store, err := postgres.New(r.pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(), schemaSQL); err != nil {
		t.Fatal(err)
	}
	r.base = plan{Redis: srv.URL(), Postgres: dsn, Prefix: redistest.Prefix(t)}
	return r
}

// listPoints runs a worker over a few tasks and lets it end in peace.
func (r *rig) listPoints() []string {
	l, err := r.open("points")
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.q.Close()
	for n := range 4 {
		l.add(n)
	}
	p := l.plan
	p.List = true
	w, err := r.start(p)
	if err != nil {
		r.t.Fatal(err)
	}
	defer w.kill()
	if err := l.drained(w, drainLimit); err != nil {
		r.t.Fatal(err)
	}
	_ = w.alive.Close()
	<-w.exited
	points := w.out.said("point")
	slices.Sort(points)
	return points
}

// lane kills its share of the workers, and then lets one finish what is left.
func (r *rig) lane(n int) {
	l, err := r.open(fmt.Sprintf("lane%d", n))
	if err != nil {
		r.t.Error(err)
		return
	}
	defer l.q.Close()
	random := rand.New(rand.NewPCG(*seed, uint64(n)))
	for run := n; run < *runs; run += lanes {
		l.add(run)
		p, life := l.plan, longest
		if random.IntN(3) > 0 {
			// The points in turn, so that a long test leaves none out.
			p.At, p.Pass = r.points[(run+run/len(r.points))%len(r.points)], 1+random.IntN(2)
		} else {
			life = time.Duration(random.Int64N(int64(200 * time.Millisecond)))
		}
		if err := l.killOne(p, life); err != nil {
			r.t.Errorf("run %d: %v", run, err)
			return
		}
	}
	w, err := r.start(l.plan)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer w.kill()
	if err := l.drained(w, drainLimit); err != nil {
		r.t.Error(err)
	}
}

// report counts effects and says how it went; the last line is for people and
// for programs.
func (r *rig) report(began time.Time) {
	effects := map[string]int{}
	for kind, table := range map[string]string{kindTx: "effects", kindStep: "other_side"} {
		rows, err := r.pool.Query(r.t.Context(), "select task, count(*) from "+table+" group by task")
		if err != nil {
			r.t.Fatal(err)
		}
		for rows.Next() {
			var task string
			var n int
			if err := rows.Scan(&task, &n); err != nil {
				r.t.Fatal(err)
			}
			effects[kind+" "+task] = n
		}
		if err := rows.Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	sum, doubled, lost := 0, 0, 0
	for _, task := range r.tasks {
		n := effects[task]
		sum += n
		switch {
		case n == 0:
			lost++
			r.t.Errorf("%s: no effect", task)
		case n > 1:
			doubled++
			r.t.Errorf("%s: %d effects", task, n)
		}
	}
	killed := 0
	for _, point := range slices.Sorted(maps.Keys(r.died)) {
		killed += r.died[point]
		fmt.Printf("%6d %s\n", r.died[point], point)
	}
	if killed != *runs {
		r.t.Errorf("%d workers were killed, want %d", killed, *runs)
	}
	if r.died[elsewhere] == killed {
		r.t.Error("no worker died at a point")
	}
	verdict := "ok"
	if r.t.Failed() || sum != len(r.tasks) {
		verdict = "failed"
		r.t.Fail()
	}
	fmt.Printf("killpoints: tasks=%d points=%d of %d seed=%d took=%v\n", len(r.tasks), len(r.died), len(r.points), *seed, time.Since(began).Round(time.Second))
	summary = fmt.Sprintf("killpoints: %s runs=%d effects=%d doubled=%d lost=%d", verdict, killed, sum, doubled, lost)
}
