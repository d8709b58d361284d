package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// TaskInfo is what is known of one task.
type TaskInfo struct {
	ID            TaskID
	Place         Place
	EntryID       EntryID
	Task          *Task     // nil when done
	Fence         Fence     // of the last holder while it is pending
	Token         Token     // of the holder
	Started       bool      // the holder's handler has started
	LeaseEnds     time.Time // server's clock; zero when nobody holds it
	Due           time.Time // when scheduled
	Failures      int
	Interruptions int
	LastError     string
	Reason        DeadReason // when in the dead letters
	Result        []byte     // when done
	Steps         []Step
}

// Inspect tells what is known of one task. ErrNotFound: it was never seen, or
// is forgotten; so is a task added with a plain XADD until it is first read.
func (q *Queue) Inspect(ctx context.Context, id TaskID) (TaskInfo, error) {
	p, err := q.home(ctx, id)
	if err != nil {
		return TaskInfo{ID: id}, err
	}
	return q.inspect(ctx, id, p)
}

func (q *Queue) inspect(ctx context.Context, id TaskID, partition int) (TaskInfo, error) {
	info := TaskInfo{ID: id}
	c := q.call(scriptInspect, partition, string(id), digest(id), q.window)
	q.run(ctx, c)
	reply := asList(c.reply)
	if c.err == nil && len(reply) != 6 {
		c.err = shapeError("inspect", c.reply)
	}
	if c.err != nil {
		return info, c.err
	}
	rec := asString(reply[0])
	info.Steps = parseSteps(asString(reply[3]))
	switch rec {
	case "":
		return info, fmt.Errorf("%w: %s", ErrNotFound, id)
	case "done":
		info.Place = Done
		if r := asString(reply[4]); r != "" {
			info.Result = []byte(r)
		}
		return info, nil
	}
	if !info.readRecord(rec, reply[1]) {
		return info, fmt.Errorf("%w: inspect: the record of %s is %q", ErrIndefinite, id, rec)
	}
	info.readCounts(asString(reply[2]))
	fields := asStrings(reply[5])
	e := Entry{Queue: q, Partition: partition, ID: info.EntryID, Fields: fields}
	if info.Place == Dead && len(fields) >= deadFields {
		dead := readDead(Entry{Queue: q, Partition: partition, ID: info.EntryID, Fields: fields})
		info.Reason, info.LastError = dead.Reason, dead.Error
		info.Failures, info.Interruptions = dead.Failures, dead.Interruptions
		e = Entry{Queue: q, Partition: partition, ID: dead.Entry, Fields: dead.Fields}
	}
	if t, err := e.decode(); err == nil {
		info.Task = &t
	}
	return info, nil
}

// readRecord takes a record apart; include/record.lua describes it. It is false
// when it is no record.
func (info *TaskInfo) readRecord(rec string, at any) bool {
	places := map[byte]Place{'w': Waiting, 's': Scheduled, 'd': Dead, 'h': Pending, 'p': Pending}
	info.Place = places[rec[0]]
	parts := strings.Fields(rec[1:])
	if info.Place == Unknown || len(parts) == 0 {
		return false
	}
	info.EntryID = EntryID(parts[0])
	if len(parts) == 4 {
		info.Fence, info.Token = parseFence(parts[2]), Token(parts[3])
		info.Started = rec[0] == 'p'
		if asString(at) != "" {
			info.LeaseEnds = asTime(at)
		}
	}
	if info.Place == Scheduled && asString(at) != "" {
		info.Due = asTime(at)
	}
	return true
}

func (info *TaskInfo) readCounts(v string) {
	parts := strings.SplitN(v, " ", 5)
	if len(parts) == 5 {
		info.Failures, info.Interruptions, info.LastError = int(asInt(parts[0])), int(asInt(parts[1])), parts[4]
	}
}
