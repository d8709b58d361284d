package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	bc "github.com/claimq/claimq/bench/internal/contender"
)

// server is what contenders work on. Its accounts are its own.
type server interface {
	address() string
	// cpu is the processor time that it has used, in seconds.
	cpu() (float64, error)
	// memory is how many bytes the tasks take up.
	memory() (float64, error)
	// reset empties it.
	reset() error
	stop()
}

const startTimeout = 30 * time.Second

// redisServer is a redis-server on a free port.
type redisServer struct {
	cmd  *exec.Cmd
	addr string
	dir  string
	rdb  *redis.Client
}

// startRedis starts a server with an empty directory below parent.
func startRedis(binary, parent string, aof bool) (*redisServer, error) {
	return startServer([]string{binary}, parent, aof)
}

// startServer starts one by a command that its own arguments follow.
func startServer(command []string, parent string, aof bool) (*redisServer, error) {
	dir, err := os.MkdirTemp(parent, "redis-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	appendOnly := "no"
	if aof {
		appendOnly = "yes"
	}
	cmd := exec.Command(command[0], append(slices.Clone(command[1:]), "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "",
		"--appendonly", appendOnly, "--appendfsync", "everysec", "--loglevel", "warning", "--logfile", filepath.Join(dir, "log"))...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &redisServer{cmd: cmd, dir: dir, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 2, ReadTimeout: time.Minute})
	if err := eventually(func() error { return s.rdb.Ping(context.Background()).Err() }); err != nil {
		s.stop()
		return nil, fmt.Errorf("redis-server does not answer: %w", err)
	}
	return s, nil
}

func (s *redisServer) address() string { return s.addr }

func (s *redisServer) cpu() (float64, error) { return s.info("cpu", "used_cpu_user", "used_cpu_sys") }

func (s *redisServer) memory() (float64, error) { return s.info("memory", "used_memory") }

func (s *redisServer) info(section string, fields ...string) (sum float64, err error) {
	text, err := s.rdb.Info(context.Background(), section).Result()
	if err != nil {
		return 0, err
	}
	for _, f := range fields {
		v, ok := bc.InfoField(text, f)
		if !ok {
			return 0, fmt.Errorf("INFO %s has no %s", section, f)
		}
		sum += v
	}
	return sum, nil
}

func (s *redisServer) reset() error {
	ctx := context.Background()
	return errors.Join(s.rdb.FlushAll(ctx).Err(), s.rdb.Do(ctx, "SCRIPT", "FLUSH").Err())
}

func (s *redisServer) stop() {
	_ = s.rdb.Close()
	end(s.cmd)
	_ = os.RemoveAll(s.dir)
}

// end kills a process of ours and waits for it.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func eventually(f func() error) error {
	var err error
	for began := time.Now(); time.Since(began) < startTimeout; time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}
