package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// postgres is a PostgreSQL server on a free port. It refuses to run as root,
// so it runs as another user where the driver does.
type postgres struct {
	bin     string
	dir     string
	dsn     string
	cmd     *exec.Cmd
	prepare func() error // makes and empties the tables
}

// settings give up what a machine that stops would lose, as Redis without an
// append-only file does, and leave more memory than the work needs.
var settings = []string{
	"fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=512MB", "max_wal_size=4GB",
	"max_connections=200", "listen_addresses=127.0.0.1",
}

func startPostgres(parent string) (*postgres, error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		bins = append(bins, path)
	}
	if len(bins) == 0 {
		return nil, errors.New("PostgreSQL is not there")
	}
	dir, err := os.MkdirTemp("", "claimq-bench-pg-") // not below parent, which its user may not enter
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: filepath.Dir(slices.Max(bins)), dir: dir}
	if err := p.start(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *postgres) start() error {
	who, err := credential(p.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	initdb := exec.Command(filepath.Join(p.bin, "initdb"), "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = who, p.dir
	if err := output(initdb); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-p", strconv.Itoa(port), "-k", p.dir}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	p.cmd = exec.Command(filepath.Join(p.bin, "postgres"), args...)
	p.cmd.SysProcAttr, p.cmd.Dir = who, p.dir
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	p.dsn = fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=disable", port)
	return eventually(func() error { return p.query("select 1", new(int)) })
}

// credential makes dir belong to the user that the server is to run as.
func credential(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return attr, os.Chown(dir, uid, gid)
}

func (p *postgres) query(sql string, into any) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(into)
}

func (p *postgres) address() string { return p.dsn }

func (p *postgres) reset() error { return p.prepare() }

func (p *postgres) memory() (float64, error) {
	var n int64
	err := p.query("select pg_total_relation_size('river_job')", &n)
	return float64(n), err
}

// ticks is how many clock ticks /proc counts in a second.
const ticks = 100

// cpu is that of the server's processes, and of those that have ended.
func (p *postgres) cpu() (float64, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		own := filepath.Base(filepath.Dir(name)) == strconv.Itoa(p.cmd.Process.Pid)
		if len(f) < 15 || !own && f[1] != strconv.Itoa(p.cmd.Process.Pid) {
			continue
		}
		for _, field := range f[11:15] { // user, system, and the same of children that were waited for
			v, _ := strconv.ParseFloat(field, 64)
			sum += v / ticks
		}
	}
	return sum, nil
}

// stop asks for an immediate shutdown, so that no child is left.
func (p *postgres) stop() {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		_ = p.cmd.Wait()
	}
	_ = os.RemoveAll(p.dir)
}
