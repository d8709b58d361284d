package demo

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scrapeTimeout is short: a frozen worker accepts connections and answers
// nothing.
const scrapeTimeout = 400 * time.Millisecond

// counters is what a worker says of itself.
type counters struct {
	reclaimed  int
	refused    int // settles, because the lease had been lost
	leasesLost int
	duplicates int
}

func (c counters) plus(d counters) counters {
	return counters{c.reclaimed + d.reclaimed, c.refused + d.refused, c.leasesLost + d.leasesLost, c.duplicates + d.duplicates}
}

// scraper reads the workers' own metrics.
type scraper struct {
	client *http.Client
	mu     sync.Mutex
	addrs  map[string]string // by worker
}

func newScraper() *scraper {
	return &scraper{client: &http.Client{Transport: &http.Transport{}, Timeout: scrapeTimeout}, addrs: map[string]string{}}
}

func (s *scraper) close() { s.client.CloseIdleConnections() }

// scrape asks every worker that can answer, and returns the sum of what is
// known of all, the last word of a killed one included.
func (s *scraper) scrape(ctx context.Context, ps []*process) counters {
	var wg sync.WaitGroup
	for _, p := range ps {
		addr, ok := s.addr(p)
		if !ok || p.ended() || p.is("frozen") {
			continue
		}
		wg.Go(func() {
			if c, ok := s.read(ctx, addr); ok {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.counts = c
			}
		})
	}
	wg.Wait()
	var sum counters
	for _, p := range ps {
		sum = sum.plus(p.known())
	}
	return sum
}

func (p *process) known() counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// addr returns where a worker serves its metrics, once it has said so.
func (s *scraper) addr(p *process) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.addrs[p.name]; ok {
		return a, true
	}
	select {
	case a := <-p.log.addr:
		s.addrs[p.name] = a
		return a, true
	default:
		return "", false
	}
}

func (s *scraper) read(ctx context.Context, addr string) (counters, bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return counters{}, false
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return counters{}, false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return counters{}, false
	}
	return parseCounters(resp.Body)
}

// parseCounters reads the few names that are needed from the text format.
func parseCounters(r io.Reader) (counters, bool) {
	var c counters
	want := map[string]*int{
		"claimq_reclaimed_entries_total":     &c.reclaimed,
		"claimq_refused_settles_total":       &c.refused,
		"claimq_leases_lost_total":           &c.leasesLost,
		"claimq_duplicates_suppressed_total": &c.duplicates,
	}
	found := 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), "{")
		at := want[name]
		if !ok || at == nil {
			continue
		}
		_, value, _ := strings.Cut(rest, "} ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, false
		}
		*at += int(v)
		found++
	}
	return c, lines.Err() == nil && found >= len(want)
}
