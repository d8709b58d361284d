package consumer

// reserve keeps places for up to n entries, none while nothing may be fetched.
// New tasks may be fetched ahead of the slots.
func (w *Worker) reserve(n int, ahead bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.mayFetch():
		return 0
	case ahead && w.room() == 0:
		return 0
	case ahead:
		return w.hand.slots.reserve(n, w.ahead())
	}
	return w.hand.slots.reserve(n, 0)
}

// room is how many new entries are worth a read. The caller holds mu.
func (w *Worker) room() int {
	h := &w.hand
	ahead := w.ahead()
	if ahead > 0 && h.slots.ready > ahead/2 {
		return 0 // few, and soon it will be many
	}
	return h.slots.want(ahead)
}

// ahead is how many new tasks may now be fetched, and put on record as started,
// beyond those for which there is a slot. The caller holds mu.
func (w *Worker) ahead() int {
	h := &w.hand
	if !w.adapts || h.suspects > 0 || h.slots.held > 0 || h.owing || w.draining() {
		return 0
	}
	return h.pace.ahead(h.slots.concurrency)
}

// waitingForTurns reports whether tasks are on record as started for which no
// slot is vacant.
func (w *Worker) waitingForTurns() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hand.slots.ready > w.hand.slots.vacant()
}

func (w *Worker) unreserve(n int) {
	if n == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hand.slots.unreserve(n)
	w.changed()
}

// wants reports whether the worker has room for more.
func (w *Worker) wants() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mayFetch() && w.hand.slots.want(0) > 0
}

// mayFetch reports whether anything may be fetched at all. The caller holds
// mu.
func (w *Worker) mayFetch() bool {
	h := &w.hand
	return !w.draining() &&
		h.unsettled() < w.cfg.MaxUnsettled &&
		h.slots.over() == 0 &&
		h.solo == nil && !h.soloWaits() // its neighbours would only wait
}
