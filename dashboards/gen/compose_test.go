package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// service is what this test knows of a service; anything else is an error.
type service struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	WorkingDir  string            `yaml:"working_dir"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	ExtraHosts  []string          `yaml:"extra_hosts"`
	DependsOn   []string          `yaml:"depends_on"`
	Restart     string            `yaml:"restart"`
	Grace       string            `yaml:"stop_grace_period"`
}

type compose struct {
	Name     string             `yaml:"name"`
	Claimq   service            `yaml:"x-claimq"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

func decodeYAML(t *testing.T, name string, to any) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader(committed(t, name)))
	dec.KnownFields(true)
	if err := dec.Decode(to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// pinned is an image with a version.
var pinned = regexp.MustCompile(`^[a-z/]+:v?\d+\.\d+(\.\d+)?$`)

// TestCompose: images are pinned, what is mounted is there, what is depended on
// exists, and nothing listens beyond this machine.
func TestCompose(t *testing.T) {
	var c compose
	decodeYAML(t, "compose.yaml", &c)
	for _, want := range []string{"redis", "prometheus", "grafana", "worker", "exporter"} {
		if _, ok := c.Services[want]; !ok {
			t.Errorf("no service %s", want)
		}
	}
	for name, s := range c.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q has no version", name, s.Image)
		}
		for _, v := range s.Volumes {
			source, rest, _ := strings.Cut(v, ":")
			if !strings.HasPrefix(source, ".") {
				if _, ok := c.Volumes[source]; !ok {
					t.Errorf("%s: no volume %s", name, source)
				}
				continue
			}
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(source))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !strings.HasSuffix(rest, ":ro") {
				t.Errorf("%s: %s can be written to", name, source)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to others", name, p)
			}
		}
		for _, d := range s.DependsOn {
			if _, ok := c.Services[d]; !ok {
				t.Errorf("%s depends on %s, which is no service", name, d)
			}
		}
	}
}

// TestWiring: each part asks for the next under the name and at the path that
// compose.yaml gives it.
func TestWiring(t *testing.T) {
	var c compose
	decodeYAML(t, "compose.yaml", &c)
	var prom struct {
		Global map[string]string `yaml:"global"`
		Rules  []string          `yaml:"rule_files"`
		Scrape []struct {
			Job    string `yaml:"job_name"`
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	decodeYAML(t, "prometheus/prometheus.yml", &prom)
	for _, job := range prom.Scrape {
		for _, s := range job.Static {
			for _, target := range s.Targets {
				host, port, _ := strings.Cut(target, ":")
				if s, ok := c.Services[host]; !ok || s.Environment["OPS_ADDR"] != ":"+port {
					t.Errorf("job %s: nothing listens at %s", job.Job, target)
				}
			}
		}
	}
	if !slices.Equal(prom.Rules, []string{"recording.yml", "alerts.yml"}) || len(prom.Scrape) != 2 {
		t.Errorf("rules %v, %d jobs", prom.Rules, len(prom.Scrape))
	}

	var source struct {
		Version int `yaml:"apiVersion"`
		List    []struct {
			Name      string            `yaml:"name"`
			UID       string            `yaml:"uid"`
			Type      string            `yaml:"type"`
			Access    string            `yaml:"access"`
			URL       string            `yaml:"url"`
			IsDefault bool              `yaml:"isDefault"`
			Editable  bool              `yaml:"editable"`
			Data      map[string]string `yaml:"jsonData"`
		} `yaml:"datasources"`
	}
	decodeYAML(t, "provisioning/datasources/prometheus.yaml", &source)
	if ds := source.List[0]; ds.URL != "http://prometheus:9090" || ds.Type != "prometheus" || !ds.IsDefault ||
		ds.Data["timeInterval"] != prom.Global["scrape_interval"] {
		t.Errorf("data source %+v, scraped every %s", ds, prom.Global["scrape_interval"])
	}

	var provider struct {
		Version int `yaml:"apiVersion"`
		List    []struct {
			Name     string            `yaml:"name"`
			Folder   string            `yaml:"folder"`
			Type     string            `yaml:"type"`
			Keep     bool              `yaml:"disableDeletion"`
			Changes  bool              `yaml:"allowUiUpdates"`
			Interval int               `yaml:"updateIntervalSeconds"`
			Options  map[string]string `yaml:"options"`
		} `yaml:"providers"`
	}
	decodeYAML(t, "provisioning/dashboards/claimq.yaml", &provider)
	dir := provider.List[0].Options["path"]
	for _, name := range boards {
		if !slices.Contains(c.Services["grafana"].Volumes, "./"+name+":"+dir+"/"+name+":ro") {
			t.Errorf("%s is not mounted in %s", name, dir)
		}
	}
}
