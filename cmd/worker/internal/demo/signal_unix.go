//go:build unix

package demo

import (
	"os"
	"syscall"
)

// The signals that freeze a process and wake it.
var sigStop, sigCont os.Signal = syscall.SIGSTOP, syscall.SIGCONT
