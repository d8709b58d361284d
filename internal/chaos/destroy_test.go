package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Faults that destroy what the server has acknowledged. Each says beforehand
// which tasks it may make the server forget something about.

const (
	// everysec: the server writes before it answers, but puts that off for up
	// to two seconds while the disk is busy.
	everysecLag = 2 * time.Second
	aofDir      = "appendonlydir"
)

// touched returns the tasks about which something may have been written since
// a moment: those in hand, and those answered so late that they were settled
// after it.
func (d *driver) touched(since time.Time) func(task int) bool {
	in := map[int]bool{}
	for name, runs := range d.rec.ByTask() {
		last := runs[len(runs)-1]
		d.h.mu.Lock()
		since := d.h.unsettled(since, last.Worker)
		d.h.mu.Unlock()
		if last.Ended.IsZero() || last.Ended.After(since) {
			in[number(name)] = true
		}
	}
	return func(task int) bool { return in[task] }
}

// destroy comes to a server whose clock is not behind: a stream that forgot its
// last entries would else give their IDs to others, as guarantees.md says.
func (d *driver) destroy(kind string) bool {
	d.catchUp()
	switch kind {
	case killEvery:
		d.must(d.rdb.ConfigSet(bg, "appendfsync", "everysec").Err())
		d.pause(100 * time.Millisecond)
		f := d.h.add(&fault{kind: kind, from: time.Now(), excuses: true, stops: true, silences: true})
		d.primary.Kill()
		since := f.from.Add(-everysecLag)
		d.mayForget(f, d.l.since(since, d.touched(since)))
		d.primary.Restart()
		d.back(f)
	case restored:
		d.restore()
	case promoted:
		return d.promote()
	case evicted:
		d.evict()
	case flushed:
		f := d.h.add(&fault{kind: kind, from: time.Now(), excuses: true, stops: true})
		d.must(d.rdb.Do(bg, "FLUSHALL").Err()) // a server of its own
		now, err := d.rdb.Time(bg).Result()
		d.must(err)
		d.h.mu.Lock()
		f.fence = uint64(now.UnixMicro())
		d.h.mu.Unlock()
		d.forgetAll(f)
		d.h.over(f)
	}
	d.reconcile()
	return true
}

func (d *driver) mayForget(f *fault, tasks []bool) {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	f.mayForget = tasks
}

func (d *driver) forgetAll(f *fault) {
	d.mayForget(f, d.l.since(time.Time{}, func(int) bool { return true }))
}

// reconcile is the job that sends again what was not answered yet.
func (d *driver) reconcile() {
	done := map[int]bool{}
	for name, runs := range d.rec.ByTask() {
		done[number(name)] = !runs[len(runs)-1].Ended.IsZero()
	}
	d.l.reconcile(bg, func(task int) bool { return !done[task] })
}

// restore runs on after a copy of the append-only files, and then goes back to it.
func (d *driver) restore() {
	live := filepath.Join(d.primary.Dir(), aofDir)
	old := filepath.Join(d.t.TempDir(), "old")
	d.must(d.rdb.ConfigSet(bg, "auto-aof-rewrite-percentage", "0").Err()) // the set of files stays
	d.eventually("no rewrite under way", func() bool {
		return strings.Contains(d.rdb.Info(bg, "persistence").Val(), "aof_rewrite_in_progress:0")
	})
	copied := time.Now().Add(-everysecLag)
	d.must(os.CopyFS(old, os.DirFS(live)))
	d.pause(time.Duration(d.rnd.Int64N(int64(2 * lease))))
	f := d.h.add(&fault{kind: restored, from: time.Now(), excuses: true, stops: true, silences: true})
	d.primary.Kill()
	d.mayForget(f, d.l.since(copied, d.touched(copied)))
	d.must(os.RemoveAll(live))
	d.must(os.CopyFS(live, os.DirFS(old)))
	d.primary.Restart()
	d.back(f)
	d.must(os.RemoveAll(old))
}

// promote cuts the replica off, lets the primary go on alone for a while, kills
// it and puts the replica in its place.
func (d *driver) promote() bool {
	if !d.inSync() {
		return false
	}
	parted := time.Now()
	d.link.Refuse()
	d.link.Cut()
	d.pause(time.Duration(d.rnd.Int64N(int64(lease))))
	f := d.h.add(&fault{kind: promoted, from: time.Now(), excuses: true, stops: true, silences: true})
	d.primary.Kill()
	d.must(d.spare.ReplicaOf(bg, "NO", "ONE").Err())
	d.mayForget(f, d.l.since(parted, d.touched(parted)))
	d.primary, d.replica = d.replica, d.primary
	d.rdb, d.spare = d.spare, d.rdb
	d.way.Retarget(d.primary.Addr())
	for _, s := range d.slots {
		s.proxy.Retarget(d.primary.Addr())
	}
	d.back(f)
	d.replica.Restart()
	d.link.Retarget(d.primary.Addr())
	d.link.Heal()
	d.follow()
	d.reconcile()
	return true
}

// inSync reports whether the replica has, at some moment within a second, all
// that the primary has.
func (d *driver) inSync() bool {
	if !strings.Contains(d.spare.Info(bg, "replication").Val(), "master_link_status:up") {
		return false
	}
	n, err := d.rdb.Wait(bg, 1, time.Second).Result()
	return err == nil && n == 1
}

// evict lets the server throw keys away whole.
func (d *driver) evict() {
	f := d.h.add(&fault{kind: evicted, from: time.Now(), excuses: true, stops: true})
	used, err := d.rdb.InfoMap(bg, "memory").Result()
	d.must(err)
	var bytes int64
	_, err = fmt.Sscan(used["Memory"]["used_memory"], &bytes)
	d.must(err)
	set := func(name, value string) { d.must(d.rdb.ConfigSet(bg, name, value).Err()) }
	set("maxmemory-policy", "allkeys-lru")
	set("maxmemory", fmt.Sprint(bytes-bytes/10))
	d.pause(lease / 4)
	set("maxmemory", "0")
	set("maxmemory-policy", "noeviction")
	d.forgetAll(f)
	d.h.over(f)
}
