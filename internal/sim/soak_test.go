package sim

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	soakFlag  = flag.Duration("sim.soak", 0, "run seeds for this long on all cores and sum up in one line")
	shardFlag = flag.Int("sim.shard", -1, "what TestShard is of a soak")
	sharded   = flag.Int("sim.shards", 1, "how many shards a soak has")
)

// tally is what a shard tells of one seed, and a soak of all.
type tally struct {
	Seed    uint64
	Began   bool // it begins; the rest is not known yet
	Seeds   int
	Virtual time.Duration
	Faults  int
	Tasks   int
	Runs    int
	Found   string
	Story   string
}

const tallyMark = "tally "

// TestShard runs every nth seed until time is up, and says so line by line.
func TestShard(t *testing.T) {
	if *shardFlag < 0 {
		return // part of a soak only
	}
	out := bufio.NewWriter(os.Stdout)
	tell := func(x tally) {
		line, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "\n%s%s\n", tallyMark, line)
		_ = out.Flush()
	}
	until := time.Now().Add(*soakFlag)
	for seed := *seedFlag + uint64(*shardFlag); time.Now().Before(until); seed += uint64(*sharded) {
		tell(tally{Seed: seed, Began: true})
		r := simulate(t, seed, chosen())
		x := tally{Seed: seed, Seeds: 1, Virtual: r.virtual, Faults: r.faults, Tasks: r.tasks, Runs: r.runs}
		if len(r.found) > 0 {
			x.Found = strings.TrimSpace(r.found[0].task + " " + r.found[0].what)
			x.Story = r.story()
		}
		tell(x)
	}
}

// soak runs one process for each core, since a run is repeatable on one
// processor only, and sums up.
func soak() (code int) {
	began := time.Now()
	shards := runtime.NumCPU()
	var mu sync.Mutex
	var sum tally
	var failed []string
	var wg sync.WaitGroup
	for i := range shards {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestShard$", "-test.timeout", "0", "-test.v=false",
				"-sim.soak", soakFlag.String(), "-sim.seed", fmt.Sprint(*seedFlag), "-sim.shard", fmt.Sprint(i), "-sim.shards", fmt.Sprint(shards), "-sim.bug", *bugFlag)
			last, err := follow(cmd, func(x tally) {
				mu.Lock()
				defer mu.Unlock()
				sum.Seeds += x.Seeds
				sum.Virtual += x.Virtual
				sum.Faults += x.Faults
				sum.Tasks += x.Tasks
				sum.Runs += x.Runs
				if x.Found != "" {
					fmt.Fprintln(os.Stderr, x.Story)
					failed = append(failed, fmt.Sprintf("soak: failed seed=%d %s", x.Seed, x.Found))
				}
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Sprintf("soak: failed seed=%d the run itself: %v", last, err))
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d seeds in %v, %.1f a second, %d handler runs\n", sum.Seeds, time.Since(began).Round(time.Second), float64(sum.Seeds)/time.Since(began).Seconds(), sum.Runs)
	if len(failed) > 0 {
		fmt.Println(strings.Join(failed, "\n"))
		return 1
	}
	fmt.Printf("soak: ok seeds=%d virtual_hours=%.1f faults=%d tasks=%d\n", sum.Seeds, sum.Virtual.Hours(), sum.Faults, sum.Tasks)
	return 0
}

// follow runs a shard, hands on what it tells of its seeds and returns the last
// one that it began. What else it prints is passed on if it fails.
func follow(cmd *exec.Cmd, each func(tally)) (last uint64, err error) {
	var rest strings.Builder
	cmd.Stderr = &rest
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewReader(pipe)
	for {
		line, readErr := lines.ReadString('\n')
		if text, ok := strings.CutPrefix(line, tallyMark); ok {
			var x tally
			if err := json.Unmarshal([]byte(text), &x); err != nil {
				return last, err
			}
			last = x.Seed
			if !x.Began {
				each(x)
			}
		} else {
			_, _ = rest.WriteString(line)
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			return last, readErr
		}
	}
	if err := cmd.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, rest.String())
		return last, err
	}
	return last, nil
}
