package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/fleet"
)

// target is one process to be scraped.
type target struct {
	job, addr string
	slow      bool // answers late while it does not reach the server: scraped every 3 s
}

// prom is a running Prometheus.
type prom struct {
	base    string
	process *fleet.Worker
}

// startProm runs Prometheus on a free port; it ends with the test.
func startProm(t *testing.T, targets []target) *prom {
	t.Helper()
	dir := t.TempDir()
	shorterRules(t, dir)
	var c strings.Builder
	c.WriteString("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\n" +
		"rule_files: [recording.yml, alerts.yml]\nscrape_configs:\n")
	for _, job := range []string{"worker", "exporter", "producer"} {
		fmt.Fprintf(&c, "- job_name: %s\n  static_configs:\n", job)
		for _, g := range targets {
			if g.job != job {
				continue
			}
			fmt.Fprintf(&c, "  - targets: [%q]\n", g.addr)
			if g.slow {
				c.WriteString("    labels: {__scrape_interval__: 3s, __scrape_timeout__: 3s}\n")
			}
		}
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(c.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	p := &prom{base: "http://" + addr}
	p.process = fleet.Run(t, "prometheus", nil, prometheusPath,
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr,
		"--enable-feature=exemplar-storage", "--log.level=warn")
	return p
}

// freeAddr is a loopback address that nobody listens on, below the ports that
// the kernel gives to outgoing connections.
func freeAddr(t *testing.T) string {
	t.Helper()
	for port := 8000 + os.Getpid()%3000; port < 12000; port++ {
		if taken[port] {
			continue
		}
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		taken[port] = true
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

var taken = map[int]bool{} // given out by freeAddr

// series is one series of an answer.
type series struct {
	labels map[string]string
	values []float64 // NaN left out
}

// get asks the API and decodes the data of its answer.
func (p *prom) get(path string, params url.Values, data any) error {
	client := http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get(p.base + path + "?" + params.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status string
		Error  string
		Data   json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// now evaluates an expression at this moment.
func (p *prom) now(expr string) ([]series, error) {
	return p.query("/api/v1/query", url.Values{"query": {expr}})
}

// over evaluates an expression every second from a moment on.
func (p *prom) over(expr string, from time.Time) ([]series, error) {
	return p.query("/api/v1/query_range", url.Values{
		"query": {expr}, "step": {"1"},
		"start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)},
	})
}

func (p *prom) query(path string, params url.Values) ([]series, error) {
	var data struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  [2]any
			Values [][2]any
		}
	}
	err := p.get(path, params, &data)
	if err != nil || data.ResultType == "scalar" {
		return nil, err
	}
	var all []series
	for _, r := range data.Result {
		one := series{labels: r.Metric}
		if r.Values == nil {
			r.Values = [][2]any{r.Value}
		}
		for _, pair := range r.Values {
			text, _ := pair[1].(string)
			if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
				one.values = append(one.values, v)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// value is the one value of an expression, and whether it has one.
func (p *prom) value(t *testing.T, expr string) (float64, bool) {
	t.Helper()
	all, err := p.now(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	if len(all) > 1 {
		t.Fatalf("%s has %d values", expr, len(all))
	}
	if len(all) == 0 || len(all[0].values) == 0 {
		return 0, false
	}
	return all[0].values[0], true
}

// labelValues are those of a label since a moment, of series of a selector.
func (p *prom) labelValues(label, selector string, from time.Time) (values []string, err error) {
	err = p.get("/api/v1/label/"+label+"/values", url.Values{
		"match[]": {selector}, "start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)},
	}, &values)
	return values, err
}

// rule is a rule as Prometheus has loaded it.
type rule struct {
	Type, Name, Query, Health, LastError string
}

func (p *prom) rules() ([]rule, error) {
	var data struct {
		Groups []struct{ Rules []rule }
	}
	err := p.get("/api/v1/rules", nil, &data)
	var all []rule
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// firing are the alerts that fire now, by name.
func (p *prom) firing() (map[string]bool, error) {
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	err := p.get("/api/v1/alerts", nil, &data)
	names := map[string]bool{}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names[a.Labels["alertname"]] = true
		}
	}
	return names, err
}
