package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/claimq/claimq/queue"
)

// Bounds on what is read.
const (
	MaxTasks     = 100_000
	maxLineBytes = 8 << 20
)

// Generate returns n tasks with stable IDs.
func Generate(n int) ([]queue.Task, error) {
	if n < 1 || n > MaxTasks {
		return nil, fmt.Errorf("use 1 to %d tasks, got %d", MaxTasks, n)
	}
	kinds := []string{"invoice.send", "mail.welcome", "report.build"}
	tasks := make([]queue.Task, n)
	for i := range tasks {
		kind := kinds[i%len(kinds)]
		t, err := queue.NewTask(kind, map[string]any{"number": i + 1, "cents": 100 + 37*i})
		if err != nil {
			return nil, err
		}
		t.ID = queue.TaskID(fmt.Sprintf("%s-%d", kind, i+1))
		tasks[i] = t
	}
	return tasks, nil
}

// ReadTasks reads JSON Lines with id, kind and payload; other members are
// ignored. A second line of the same ID is the same task: again counts those.
func ReadTasks(r io.Reader) (tasks []queue.Task, again int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	seen := map[queue.TaskID]bool{}
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line struct {
			ID      queue.TaskID
			Kind    string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		if line.ID == "" || line.Kind == "" {
			return nil, 0, fmt.Errorf("line %d: id and kind are needed", n)
		}
		if seen[line.ID] {
			again++
			continue
		}
		seen[line.ID] = true
		t, err := queue.NewTask(line.Kind, bytes.Clone(line.Payload))
		if err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		t.ID, t.ContentType = line.ID, "application/json"
		tasks = append(tasks, t)
		if len(tasks) > MaxTasks {
			return nil, 0, fmt.Errorf("line %d: more than %d tasks", n, MaxTasks)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, 0, err
	}
	if len(tasks) == 0 {
		return nil, 0, errors.New("there is no task in it")
	}
	return tasks, again, nil
}

// twice returns a tenth of the tasks, at least one, in two halves: those
// enqueued again at once, while the first are waiting or running, and those
// enqueued again when all is done.
func twice(tasks []queue.Task) (early, late []queue.Task) {
	for i := 0; i < len(tasks); i += 10 {
		if (i/10)%2 == 0 {
			early = append(early, tasks[i])
		} else {
			late = append(late, tasks[i])
		}
	}
	return early, late
}
