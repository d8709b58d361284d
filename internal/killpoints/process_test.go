package killpoints

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// process is one worker.
type process struct {
	cmd    *exec.Cmd
	alive  io.Closer // its standard input: the worker stops when that ends, as it does with this process
	out    *output
	exited chan struct{}
}

// output keeps what a worker says, and tells when it is up.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	up   chan struct{}
	once sync.Once
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if bytes.Contains(o.text.Bytes(), []byte("up\n")) {
		o.once.Do(func() { close(o.up) })
	}
	return len(b), nil
}

// said returns what follows a word, line by line.
func (o *output) said(word string) (rest []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.text.String()) {
		if after, ok := strings.CutPrefix(line, word+" "); ok {
			rest = append(rest, strings.TrimSpace(after))
		}
	}
	return rest
}

func (r *rig) start(p plan) (*process, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	w := &process{cmd: exec.Command(os.Args[0]), out: &output{up: make(chan struct{})}, exited: make(chan struct{})}
	if w.alive, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	w.cmd.Env = append(os.Environ(), planVariable+"="+string(text))
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = w.cmd.Wait() // how it ended is in its output
		close(w.exited)
	}()
	return w, nil
}

// kill ends the worker, if its point has not.
func (w *process) kill() {
	_ = w.cmd.Process.Kill() // an error: it has ended already
	<-w.exited
}
