package push

import (
	"fmt"
	"net/url"
	"strings"
)

// Route sends the tasks of some kinds to a URL.
type Route struct {
	// Pattern is a kind ("invoice.send"), the beginning of kinds and a star
	// ("invoice.*"), or "*" for every kind.
	Pattern string
	URL     string // http or https
}

// match reports whether the route takes the kind, and how closely: an exact
// route beats every prefix, and a longer prefix beats a shorter one.
func (r Route) match(kind string) (closeness int, ok bool) {
	prefix, wild := strings.CutSuffix(r.Pattern, "*")
	switch {
	case !wild:
		return len(r.Pattern) + 1, kind == r.Pattern
	default:
		return len(prefix), strings.HasPrefix(kind, prefix)
	}
}

// routes is a checked list of routes. It is consulted once for each delivery;
// with the handful of routes a worker has, a walk is the fastest look-up.
type routes []Route

// find returns the URL for a kind.
func (rs routes) find(kind string) (string, bool) {
	best, target := -1, ""
	for _, r := range rs {
		if n, ok := r.match(kind); ok && n > best {
			best, target = n, r.URL
		}
	}
	return target, best >= 0
}

// checkRoutes returns one problem for each fault in the list.
func checkRoutes(rs []Route) []error {
	var errs []error
	if len(rs) == 0 {
		errs = append(errs, problem("Routes", "give at least one, for instance pattern %q with the URL of your receiver", "*"))
	}
	seen := make(map[string]bool)
	for i, r := range rs {
		field := fmt.Sprintf("Routes[%d]", i)
		if err := checkPattern(r.Pattern); err != nil {
			errs = append(errs, problem(field, "%v", err))
		}
		if seen[r.Pattern] {
			errs = append(errs, problem(field, "the pattern %q is given twice", r.Pattern))
		}
		seen[r.Pattern] = true
		if err := checkURL(r.URL); err != nil {
			errs = append(errs, problem(field, "%v", err))
		}
	}
	return errs
}

func checkPattern(p string) error {
	prefix, _ := strings.CutSuffix(p, "*")
	switch {
	case p == "":
		return fmt.Errorf(`the pattern is empty; use a kind, "prefix.*" or "*"`)
	case strings.Contains(prefix, "*"):
		return fmt.Errorf("the pattern %q has a star that is not its last character", p)
	}
	return nil
}

// checkURL never repeats the URL's user information: it is a secret.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Errorf("the URL cannot be parsed; use http://host/path or https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the URL %s must begin with http:// or https://", u.Redacted())
	case u.Host == "":
		return fmt.Errorf("the URL %s has no host", u.Redacted())
	case u.Fragment != "":
		return fmt.Errorf("the URL %s has a fragment, which is never sent", u.Redacted())
	}
	return nil
}
