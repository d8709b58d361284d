package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// header says on what machine this is and who takes part.
func (b *bench) header(out io.Writer) {
	what := "short"
	if b.full {
		what = "full"
	}
	fmt.Fprintf(out, "# %s run, %s\n\n", what, time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(out, "%s, %d cores, %s/%s; %s; %s", cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), firstLine(b.server, "--version"))
	if b.aof {
		fmt.Fprint(out, ", append-only file synced every second")
	}
	if b.postgres != nil {
		fmt.Fprintf(out, "; %s", firstLine(filepath.Join(b.postgres.bin, "postgres"), "--version"))
	}
	fmt.Fprintf(out, ". Load when it began: %s.\n\n| contender | version | settings |\n|---|---|---|\n", load())
	for _, c := range b.contenders {
		fmt.Fprintf(out, "| %s | %s | %s |\n", c.name, b.versionOf(c), c.best)
	}
}

func (b *bench) versionOf(c contender) string {
	switch {
	case c.module == "":
		return "this tree"
	case c.node:
		text, err := os.ReadFile(filepath.Join(b.dir, c.program, "package.json"))
		m := regexp.MustCompile(`"` + c.module + `": "([^"]+)"`).FindSubmatch(text)
		if err != nil || m == nil {
			return "?"
		}
		return string(m[1]) + ", Node.js " + firstLine("node", "--version")
	}
	text, err := exec.Command("go", "list", "-mod=mod", "-m", "-f", "{{.Version}}", c.module).Output()
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}

func firstLine(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return name + " of unknown version"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line, _, _ = strings.Cut(line, " sha=")
	return strings.TrimSpace(line)
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	m := regexp.MustCompile(`(?m)^model name\s*: (.+)$`).FindSubmatch(text)
	if err != nil || m == nil {
		return "unknown processor"
	}
	return string(m[1])
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
