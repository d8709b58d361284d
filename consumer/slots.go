package consumer

// slots counts what a worker has in hand. It is a plain value without a lock;
// hand guards it.
//
// Invariant: busy + over() never exceeds concurrency, and inHand() never
// exceeds concurrency + prefetch + the most that was allowed ahead. A fetch
// asks for what reserve granted it and for no more, so a worker never holds
// tasks that it has no place for.
type slots struct {
	concurrency, prefetch, maxStuck int

	reserved int // places kept for entries that a fetch has asked for or is beginning
	promised int // of these, how many a Begin on the wire may put on record as started
	held     int // leased, not started
	ready    int // on record as started, waiting for their turn in a slot
	busy     int // handlers running or about to, the stuck ones left out
	stuck    int // handlers that go on after timeout and grace
}

// over is the number of stuck handlers that do not give up their slot.
func (s *slots) over() int { return max(0, s.stuck-s.maxStuck) }

// vacant is the number of slots in which no handler runs.
func (s *slots) vacant() int { return max(0, s.concurrency-s.busy-s.over()) }

// free is the number of vacant slots that nobody has been given yet.
func (s *slots) free() int { return max(0, s.vacant()-s.promised-s.ready) }

func (s *slots) inHand() int { return s.reserved + s.held + s.ready + s.busy + s.over() }

// want is how many entries may be fetched now; ahead is how many of them beyond
// slots and prefetch.
func (s *slots) want(ahead int) int { return max(0, s.concurrency+s.prefetch+ahead-s.inHand()) }

// reserve keeps up to n places for a fetch and tells how many it got.
func (s *slots) reserve(n, ahead int) int {
	n = min(n, s.want(ahead))
	s.reserved += n
	return n
}

// unreserve gives back n places that the fetch did not fill.
func (s *slots) unreserve(n int) { s.reserved -= n }

// promise sets slots aside for up to n of the reserved entries, and for ahead
// more the next turn in one, so that they may be put on record as started in
// the call that leases them. Tasks already held come first.
func (s *slots) promise(n, ahead int) int {
	room := s.concurrency + ahead - s.busy - s.over() - s.promised - s.ready - s.held
	n = max(0, min(n, room, s.reserved-s.promised))
	s.promised += n
	return n
}

// unpromise gives back n promised slots that came to nothing.
func (s *slots) unpromise(n int) { s.promised -= n }

// beganStarted turns a promised place into a task that is next in a slot.
func (s *slots) beganStarted() { s.reserved--; s.promised--; s.ready++ }

// beganHeld turns a reserved place into a held task.
func (s *slots) beganHeld() { s.reserved--; s.held++ }

// run moves a task whose turn has come into a slot.
func (s *slots) run() { s.ready--; s.busy++ }

// dropReady: a task that waited for its turn has left.
func (s *slots) dropReady() { s.ready-- }

// dropHeld: a held task has left.
func (s *slots) dropHeld() { s.held-- }

// start moves a held task into a slot.
func (s *slots) start() { s.held--; s.busy++ }

// unstart moves it back: its start is not on record.
func (s *slots) unstart() { s.busy--; s.held++ }

// end frees the slot of a handler that has ended.
func (s *slots) end(stuck bool) {
	if stuck {
		s.stuck--
	} else {
		s.busy--
	}
}

// stick counts a running handler as stuck.
func (s *slots) stick() { s.busy--; s.stuck++ }
