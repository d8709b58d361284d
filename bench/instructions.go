package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// instructions counts what the server executes for the life of a task, with
// valgrind. It is exact where times are not, says nothing about caches, and takes
// fifty times as long, so it runs only when it is asked for by name.
func (b *bench) instructions() error {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		return fmt.Errorf("it needs valgrind: %w", err)
	}
	for _, batch := range batchSizes {
		n := 1000
		if batch > 1 {
			n = 5000
		}
		for _, name := range []string{floor, us} {
			b.note("instructions: %s, batches of %d", name, batch)
			// The difference of two runs leaves out the start of the server and of
			// the queue.
			few, err := b.executed(valgrind, name, batch, n)
			if err != nil {
				return err
			}
			many, err := b.executed(valgrind, name, batch, 2*n)
			if err != nil {
				return err
			}
			b.add(name, instructionsWork(batch), row{"instructions": (many - few) / float64(n)})
		}
	}
	return nil
}

var batchSizes = []int{100, 1}

func instructionsWork(batch int) string { return fmt.Sprintf("instructions %d", batch) }

// executed is how many instructions a server executes in its whole life, in which
// it takes n tasks through theirs.
func (b *bench) executed(valgrind, name string, batch, n int) (float64, error) {
	file := filepath.Join(b.dir, fmt.Sprintf("callgrind-%s-%d-%d", name, batch, n))
	s, err := startServer([]string{valgrind, "--tool=callgrind", "--callgrind-out-file=" + file, b.server}, b.dir, b.aof)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	ch, err := b.start(s, contender{program: name}, "cycle", "--n", strconv.Itoa(n), "--batch", strconv.Itoa(batch), "--size", strconv.Itoa(smallPayload))
	if err != nil {
		return 0, err
	}
	defer ch.kill()
	ch.patience = slowPatience
	if _, err := ch.result(); err != nil {
		return 0, err
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	if err := s.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("valgrind: %w", err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if total, ok := strings.CutPrefix(line, "summary:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(total), 64)
		}
	}
	return 0, fmt.Errorf("%s has no summary", file)
}

func (b *bench) showInstructions(out io.Writer) {
	fmt.Fprint(out, "Instructions of the server for the life of a task of 256 bytes, counted by valgrind.\n\n")
	for _, batch := range batchSizes {
		fmt.Fprintf(out, "Batches of %d from one goroutine:\n\n", batch)
		b.table(out, instructionsWork(batch), []column{{"instructions", "instructions", false}, {"claimq ÷ this", "instructions", true}})
	}
}
