package fleet

import "syscall"

// sysProcAttr makes a worker die with the test binary, also where no Cleanup
// runs.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
