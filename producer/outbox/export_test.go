package outbox

// At lets f run at the points of a batch: taken, sent, settled, committed.
func (r *Relay) At(f func(point string)) { r.hook = f }

// PauseAfter is the wait after so many failures in a row.
var PauseAfter = pauseAfter
