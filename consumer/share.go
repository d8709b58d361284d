package consumer

import (
	"cmp"
	"math"
	"slices"
)

// share divides fetches among queues by weight: smooth weighted round robin
// by entries, not by calls. Every entry fetched gives each queue its part of
// one credit and costs the queue it came from a whole one, so the credits of
// queues that always have tasks stay around zero.
type share struct {
	weights []int
	total   int
	credit  []float64
	turns   []rotation // of the partitions of each queue
}

func (s *share) add(weight, partitions int) {
	s.weights = append(s.weights, weight)
	s.total += weight
	s.credit = append(s.credit, 0)
	s.turns = append(s.turns, newRotation(partitions))
}

// hot reports whether queue i probably has more: the last read of one of its
// partitions brought what was asked for.
func (s *share) hot(i int) bool { return s.turns[i].rich > 0 }

// order sorts queues by credit, the richest first; among equals the first
// named.
func (s *share) order(queues []int) []int {
	q := slices.Clone(queues)
	slices.SortStableFunc(q, func(a, b int) int { return cmp.Compare(s.credit[b], s.credit[a]) })
	return q
}

// part is how many of want entries queue i may take before the others have
// been asked: its share, and its credit on top.
func (s *share) part(i, want int, among []int) int {
	total := 0
	for _, j := range among {
		total += s.weights[j]
	}
	p := float64(want)*float64(s.weights[i])/float64(total) + s.credit[i]
	return min(want, max(0, int(math.Ceil(p-1e-9))))
}

// charge notes that queue i brought got entries, while the queues in among were
// to be served.
func (s *share) charge(i, got int, among []int) {
	total := 0
	for _, j := range among {
		total += s.weights[j]
	}
	for _, j := range among {
		s.credit[j] += float64(got) * float64(s.weights[j]) / float64(total)
	}
	s.credit[i] -= float64(got)
	if !s.hot(i) {
		// What an empty queue did not use it does not save up.
		s.credit[i] = min(s.credit[i], 0)
	}
	for _, j := range among {
		limit := 256.0 // one batch: an old debt is forgiven
		s.credit[j] = max(-limit, min(limit, s.credit[j]))
	}
}
