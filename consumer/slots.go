package consumer

// slots counts what a worker has in hand. It is a plain value without a lock;
// hand guards it.
//
// Invariant: busy + promised + over() never exceeds concurrency, and
// inHand() never exceeds concurrency + prefetch. A fetch asks for what
// reserve granted it and for no more, so a worker never holds tasks that it
// has no place for.
type slots struct {
	concurrency, prefetch, maxStuck int

	reserved int // places kept for entries that a fetch has asked for or is beginning
	promised int // of these, how many a Begin on the wire may put on record as started
	held     int // leased, not started
	busy     int // handlers running or about to, the stuck ones left out
	stuck    int // handlers that go on after timeout and grace
}

// over is the number of stuck handlers that do not give up their slot.
func (s *slots) over() int { return max(0, s.stuck-s.maxStuck) }

// free is the number of slots in which a handler may be started now.
func (s *slots) free() int { return max(0, s.concurrency-s.busy-s.promised-s.over()) }

func (s *slots) inHand() int { return s.reserved + s.held + s.busy + s.over() }

// want is how many entries may be fetched now.
func (s *slots) want() int { return max(0, s.concurrency+s.prefetch-s.inHand()) }

// reserve keeps up to n places for a fetch and tells how many it got.
func (s *slots) reserve(n int) int {
	n = min(n, s.want())
	s.reserved += n
	return n
}

// unreserve gives back n places that the fetch did not fill.
func (s *slots) unreserve(n int) { s.reserved -= n }

// promise sets slots aside for up to n of the reserved entries, so that they
// may be put on record as started in the call that leases them. Tasks already
// held come first.
func (s *slots) promise(n int) int {
	n = max(0, min(n, s.free()-s.held, s.reserved-s.promised))
	s.promised += n
	return n
}

// unpromise gives back n promised slots that came to nothing.
func (s *slots) unpromise(n int) { s.promised -= n }

// beganStarted turns a promised place into a running handler.
func (s *slots) beganStarted() { s.reserved--; s.promised--; s.busy++ }

// beganHeld turns a reserved place into a held task.
func (s *slots) beganHeld() { s.reserved--; s.held++ }

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
