package pgtest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nobody is whom the server runs as where the test is root.
const nobody = 65534

// sysProcAttr makes the server die with the test binary, also when that is
// killed or ends by the testing package's timeout, where no Cleanup runs.
// SIGQUIT ends all of its processes and gives its shared memory back.
func sysProcAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return attr
}

// giveAway makes a directory belong to whom the server runs as.
func giveAway(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Chown(dir, nobody, nobody)
}

// children returns the processes that a process has started and that run.
func children(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err == nil && parent(child) == pid {
			found = append(found, child)
		}
	}
	return found
}

// parent returns 0 for a process that is gone.
func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "pid (name) state parent …", and a name may hold anything.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// killAll ends processes and waits until they are gone, or are only waiting
// for somebody to take note.
func killAll(pids []int) error {
	var errs []error
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	for _, pid := range pids {
		for alive(pid) {
			select {
			case <-tick.C:
			case <-late.C:
				return errors.Join(append(errs, fmt.Errorf("process %d of postgres does not end", pid))...)
			}
		}
	}
	return errors.Join(errs...)
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := strings.TrimSpace(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
