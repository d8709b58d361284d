package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/claimq/claimq/queue"
)

// lineSlack is what a line may hold beside its payload: an ID, a kind, a time
// and room between them.
const lineSlack = 8 << 10

// item is one task that was read, or the reason why there is none.
type item struct {
	task queue.Task
	line int64 // from 1; 0 for a task from flags
	end  int64 // bytes read up to here
	bad  error // this line is no task
	err  error // reading failed; nothing follows
}

// source reads tasks one by one.
type source struct {
	in     *bufio.Reader
	file   io.Closer // nil: not ours to close
	size   int64     // 0: unknown
	limit  int       // bytes of a line
	offset int64
	line   int64
	only   *queue.Task
}

func newSource(r io.Reader, file io.Closer, size int64, maxPayload int) *source {
	return &source{in: bufio.NewReaderSize(r, 64<<10), file: file, size: size, limit: maxPayload + lineSlack}
}

func oneTask(t queue.Task) *source { return &source{only: &t} }

// Close closes the file.
func (s *source) Close() {
	if s.file != nil {
		_ = s.file.Close() // it was only read
	}
}

// feed sends what it reads until the end, a failure, or the end of ctx, and
// then closes items. A read that is blocked does not see the end of ctx; the
// process ends without waiting for it.
func (s *source) feed(ctx context.Context, items chan<- item) {
	defer close(items)
	for {
		it, more := s.next()
		if !more {
			return
		}
		select {
		case items <- it:
		case <-ctx.Done():
			return
		}
		if it.err != nil {
			return
		}
	}
}

// next returns the next task, and false at the end. Blank lines are passed
// over.
func (s *source) next() (item, bool) {
	if s.in == nil {
		if s.only == nil {
			return item{}, false
		}
		t := *s.only
		s.only = nil
		return item{task: t}, true
	}
	for {
		text, tooLong, err := s.readLine()
		at := item{line: s.line, end: s.offset}
		switch {
		case tooLong:
			at.bad = fmt.Errorf("longer than %d bytes; store the data elsewhere and send a reference, or raise QUEUE_MAX_PAYLOAD_BYTES", s.limit)
			return at, true
		case err != nil && !errors.Is(err, io.EOF):
			at.err = err
			return at, true
		case len(text) > 0:
			at.task, at.bad = parseLine(text)
			return at, true
		case err != nil:
			return item{}, false
		}
	}
}

// readLine returns a line without its end and surrounding space. Of a line
// that is too long it keeps nothing.
func (s *source) readLine() (text []byte, tooLong bool, err error) {
	s.line++
	for {
		part, err := s.in.ReadSlice('\n')
		s.offset += int64(len(part))
		if !tooLong {
			text = append(text, part...)
		}
		if len(text) > s.limit+2 { // with its line end
			text, tooLong = nil, true
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if s.line == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		return bytes.TrimSpace(text), tooLong, err
	}
}
